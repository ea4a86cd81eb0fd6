"""Draft tokens: the same answer, in fewer iterations the more of them are right."""

from collections import Counter
from typing import Any

import numpy
import pytest
import torch

from tests.plugins.torch_engine.conftest import ReferenceModel
from tests.plugins.torch_engine.tiny_models import VOCABULARY
from tests.plugins.trtllm.asking import PROMPT, Asker
from tests.plugins.trtllm.requests.by_hand import all_logits, greedy

COUNT = 12


@pytest.fixture(scope="module")
def free(reference: ReferenceModel) -> list[int]:
    return greedy(reference("llama"), PROMPT, COUNT)


def wrong(token_id: int) -> int:
    return (token_id + 1) % VOCABULARY


@pytest.mark.parametrize("accepted", range(6))
def test_each_token_that_is_accepted_saves_an_iteration(asker: Asker, free: list[int], accepted: int) -> None:
    draft = [*free[:accepted], *[wrong(token_id) for token_id in free[accepted:5]]]
    assert asker.ids(count=COUNT, draft_input_ids=draft) == free
    assert asker.iterations(count=COUNT, draft_input_ids=draft) == COUNT - accepted
    assert asker.iterations(count=COUNT) == COUNT


def test_a_stream_of_accepted_tokens_has_one_in_each_response(asker: Asker, free: list[int]) -> None:
    stream = asker.stream(count=COUNT, draft_input_ids=free[:5])
    assert [response["output_ids"].shape for response in stream] == [(1, 1)] * COUNT
    assert [response["output_ids"].item() for response in stream] == free


def test_a_draft_of_one_token(asker: Asker, free: list[int]) -> None:
    assert asker.iterations(count=COUNT, draft_input_ids=free[:1]) == COUNT - 1


def test_a_draft_that_is_longer_than_the_answer(asker: Asker, free: list[int]) -> None:
    assert asker.ids(count=3, draft_input_ids=free) == free[:3]
    assert asker.iterations(count=3, draft_input_ids=free) == 1


def test_a_draft_goes_no_further_than_the_end(asker: Asker, free: list[int]) -> None:
    assert asker.ids(count=COUNT, draft_input_ids=free[:8], end_id=[free[3]]) == free[:4]
    stop = [[free[1:4], [3, -1, -1]]]
    assert asker.ids(count=COUNT, draft_input_ids=free[:8], stop_words_list=stop) == free[:4]


def test_a_bad_word_refuses_what_was_drafted(asker: Asker, free: list[int]) -> None:
    bad = [[[free[2]], [1]]]
    expected = asker.ids(count=COUNT, bad_words_list=bad)
    assert asker.ids(count=COUNT, bad_words_list=bad, draft_input_ids=free[:5]) == expected
    assert asker.iterations(count=COUNT, bad_words_list=bad, draft_input_ids=free[:5]) == COUNT - 2


@pytest.mark.parametrize("accepted", [0, 3])
def test_accepted_tokens_have_logits_too(asker: Asker, free: list[int], accepted: int) -> None:
    draft = [*free[:accepted], wrong(free[accepted])]
    found = asker.ask(count=COUNT, draft_input_ids=draft, return_generation_logits=[True])["generation_logits"]
    expected = asker.ask(count=COUNT, return_generation_logits=[True])["generation_logits"]
    numpy.testing.assert_allclose(found, expected, rtol=0, atol=2e-4)


def test_draft_logits_keep_the_distribution(asker: Asker, reference: ReferenceModel) -> None:
    """A draft that is said to be drawn from another distribution, and one that is not drawn."""
    own = (all_logits(reference("llama"), PROMPT)[-1] / 4).softmax(-1)
    theirs = torch.full((VOCABULARY,), 0.0)
    drafted = int(own.argmax())
    theirs[drafted] = 8.0
    sampled: dict[str, Any] = {"runtime_top_p": [1.0], "temperature": [4.0]}
    draft: dict[str, Any] = {"draft_input_ids": [drafted], "draft_logits": theirs[None].numpy()}
    runs = 400
    counts = Counter(asker.ids(count=2, random_seed=[seed], **draft, **sampled)[0] for seed in range(runs))
    # It is kept as often as the model says, for each time that the draft's distribution would say it; and else never
    # drawn anew. Without logits the draft is certain, and the token comes as often as the model says.
    share = float(own[drafted])
    kept = share / float(theirs.softmax(-1)[drafted])
    assert abs(counts[drafted] / runs - min(1.0, kept)) < 0.08
    certain = Counter(
        asker.ids(count=2, random_seed=[seed], draft_input_ids=[drafted], **sampled)[0] for seed in range(runs)
    )
    assert abs(certain[drafted] / runs - share) < 0.08


def test_accepted_tokens_of_a_sampled_answer_save_iterations(asker: Asker, free: list[int]) -> None:
    sure = numpy.full((5, VOCABULARY), -100.0, "float32")
    sure[range(5), free[:5]] = 0
    given: dict[str, Any] = {"count": COUNT, "runtime_top_k": [1], "draft_input_ids": free[:5], "draft_logits": sure}
    assert asker.ids(**given) == free
    assert asker.iterations(**given) == COUNT - 5
