"""P-tuning: embeddings that a request brings, in the place of ids from the vocabulary's size on."""

from typing import Any

import numpy
import pytest
import torch

from tests.plugins.torch_engine.conftest import ReferenceModel
from tests.plugins.torch_engine.tiny_models import VOCABULARY
from tests.plugins.trtllm.asking import PROMPT, Asker

HIDDEN = 32
ROWS = 4
TABLE = numpy.random.default_rng(3).normal(0, 0.5, (ROWS, HIDDEN)).astype("float16")
GIVEN: dict[str, Any] = {"prompt_embedding_table": TABLE, "prompt_vocab_size": [ROWS]}


@torch.inference_mode()
def logits_by_hand(model: Any, ids: list[int]) -> torch.Tensor:
    """[tokens, vocabulary], with the table's rows for the ids beyond the vocabulary."""
    own = model.get_input_embeddings().weight
    rows = [own[i] if i < VOCABULARY else torch.tensor(TABLE[i - VOCABULARY]).float() for i in ids]
    logits: torch.Tensor = model(inputs_embeds=torch.stack(rows)[None]).logits[0]
    return logits


def greedy_by_hand(model: Any, prompt_ids: list[int], count: int) -> list[int]:
    ids = list(prompt_ids)
    for _ in range(count):
        ids.append(int(logits_by_hand(model, ids)[-1].argmax()))
    return ids[len(prompt_ids) :]


@pytest.mark.parametrize("table", [TABLE, TABLE[None]], ids=["[rows, hidden]", "[1, rows, hidden]"])
def test_ids_beyond_the_vocabulary_are_rows_of_the_table(asker: Asker, reference: ReferenceModel, table: Any) -> None:
    prompt = [5, VOCABULARY + 1, VOCABULARY + 3, 6, VOCABULARY + 1]
    given = GIVEN | {"prompt_embedding_table": table}
    assert asker.ids(prompt, **given) == greedy_by_hand(reference("llama"), prompt, 6)


def test_a_table_that_the_input_does_not_name_goes_before_it(asker: Asker, reference: ReferenceModel) -> None:
    whole = [*range(VOCABULARY, VOCABULARY + ROWS), *PROMPT]
    assert asker.ids(**GIVEN) == greedy_by_hand(reference("llama"), whole, 6)
    assert asker.ids(**GIVEN) != asker.ids()


def test_context_logits_are_those_of_the_input(asker: Asker, reference: ReferenceModel) -> None:
    whole = [*range(VOCABULARY, VOCABULARY + ROWS), *PROMPT]
    expected = logits_by_hand(reference("llama"), whole)
    before = asker.ask(return_context_logits=[True], **GIVEN)["context_logits"]
    named = asker.ask(whole, return_context_logits=[True], **GIVEN)["context_logits"]
    assert (before.shape, named.shape) == ((1, 3, VOCABULARY), (1, 7, VOCABULARY))
    numpy.testing.assert_allclose(before[0], expected[ROWS:], atol=2e-4)
    numpy.testing.assert_allclose(named[0], expected, atol=2e-4)


def test_ids_beyond_the_table(asker: Asker) -> None:
    assert asker.error([VOCABULARY + ROWS], **GIVEN) == (
        f"`input_ids` must contain token ids from 0 to {VOCABULARY + ROWS - 1}. Given: {VOCABULARY + ROWS}"
    )
    assert asker.error([VOCABULARY]) == (
        f"`input_ids` must contain token ids from 0 to {VOCABULARY - 1}. Given: {VOCABULARY}"
    )


def test_rows_of_another_size(asker: Asker) -> None:
    error = asker.error(prompt_embedding_table=TABLE[:, :-1].copy(), prompt_vocab_size=[ROWS])
    assert error == "the soft prompt must be of shape [virtual tokens, 32], the model's hidden size. Given: [4, 31]"


def test_with_other_tensors(asker: Asker, reference: ReferenceModel) -> None:
    free = greedy_by_hand(reference("llama"), [VOCABULARY, *PROMPT], 6)
    prompt = [VOCABULARY, *PROMPT]
    assert asker.ids(prompt, end_id=[free[3]], **GIVEN) == free[:4]
    assert asker.ids(prompt, draft_input_ids=free[:2], **GIVEN) == free
    assert asker.iterations(prompt, draft_input_ids=free[:2], **GIVEN) == 4
    best = asker.ask(prompt, beam_width=[2], **GIVEN)["output_ids"].tolist()
    assert len(best) == 2
    assert asker.ids(prompt, presence_penalty=[1.0], repetition_penalty=[1.2], no_repeat_ngram_size=[2], **GIVEN)
