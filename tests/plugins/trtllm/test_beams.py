"""Beam search by tensors finds what transformers' does."""

from typing import Any

import numpy
import pytest
import torch

from tests.plugins.torch_engine.conftest import ReferenceModel
from tests.plugins.torch_engine.tiny_models import VOCABULARY
from tests.plugins.trtllm.asking import PROMPT, Asker
from tests.plugins.trtllm.requests.by_hand import all_logits, log_probs

WIDTH = 4
PAD = 319


def beams_of(model: Any, count: int, end_id: int | None = None, **arguments: Any) -> list[list[int]]:
    """transformers' own, best first, up to their end."""
    prompt = torch.tensor([PROMPT])
    output = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=count,
        num_beams=WIDTH,
        num_return_sequences=WIDTH,
        eos_token_id=end_id,
        pad_token_id=PAD,
        do_sample=False,
        **arguments,
    )
    rows: list[list[int]] = output[:, len(PROMPT) :].tolist()
    return [row[: row.index(end_id) + 1] if end_id in row else row for row in rows]


def rows_of(tensors: Any) -> list[list[int]]:
    """Return the rows without their padding."""
    pairs = zip(tensors["output_ids"].tolist(), tensors["sequence_length"].tolist(), strict=True)
    return [row[:length] for row, length in pairs]


def test_beams(asker: Asker, reference: ReferenceModel) -> None:
    tensors = asker.ask(count=8, beam_width=[WIDTH])
    assert tensors["output_ids"].tolist() == beams_of(reference("llama"), 8, length_penalty=0.0)
    assert tensors["sequence_length"].tolist() == [8] * WIDTH
    again = asker.ask(count=8, beam_width=[WIDTH], runtime_top_k=[1], runtime_top_p=[0.5])  # which leave one token
    assert again["output_ids"].tolist() == tensors["output_ids"].tolist()


@pytest.fixture(scope="module")
def end_id(reference: ReferenceModel) -> int:
    """A token that some beams end with early, and others do not."""
    return beams_of(reference("llama"), 8, length_penalty=0.0)[0][3]


LENGTH, EARLY_END = 20, 19  # with which the search ends at other times for each `early_stopping`


@pytest.mark.parametrize(("len_penalty", "meaning"), [(3.0, True), (1.0, "never")])
def test_early_stopping_matters(reference: ReferenceModel, len_penalty: float, meaning: Any) -> None:
    """The values of early_stopping give different results, so that comparing them means something."""
    arguments = {"length_penalty": len_penalty}
    differently = beams_of(reference("llama"), LENGTH, EARLY_END, early_stopping=meaning, **arguments)
    assert differently != beams_of(reference("llama"), LENGTH, EARLY_END, early_stopping=False, **arguments)


@pytest.mark.parametrize(("early_stopping", "meaning"), [(0, False), (1, True), (2, "never"), (-1, "never")])
@pytest.mark.parametrize("len_penalty", [0.0, 1.0, 3.0, -1.0])
def test_ends_length_penalty_and_early_stopping(
    asker: Asker, reference: ReferenceModel, early_stopping: int, meaning: Any, len_penalty: float
) -> None:
    tensors = asker.ask(
        count=LENGTH,
        beam_width=[WIDTH],
        end_id=[EARLY_END],
        len_penalty=[len_penalty],
        early_stopping=[early_stopping],
    )
    arguments = {"length_penalty": len_penalty, "early_stopping": meaning}
    assert rows_of(tensors) == beams_of(reference("llama"), LENGTH, EARLY_END, **arguments)


def test_shorter_beams_are_filled_up(asker: Asker, end_id: int) -> None:
    given: dict[str, Any] = {"count": 8, "beam_width": [WIDTH], "end_id": [end_id]}
    everything: dict[str, Any] = {"return_log_probs": [True], "return_generation_logits": [True]}
    tensors = asker.ask(pad_id=[PAD], **given, **everything)
    lengths = tensors["sequence_length"].tolist()
    assert min(lengths) < max(lengths) == tensors["output_ids"].shape[1]
    for row, length in enumerate(lengths):
        assert set(tensors["output_ids"][row, length:].tolist()) <= {PAD}
        assert not tensors["output_log_probs"][0, row, length:].any()
        assert not tensors["generation_logits"][0, row, length:].any()
    unnamed = asker.ask(**given)["output_ids"]
    assert {token for row, length in enumerate(lengths) for token in unnamed[row, length:].tolist()} == {end_id}


def test_log_probs_and_logits(asker: Asker, reference: ReferenceModel, end_id: int) -> None:
    tensors = asker.ask(
        count=8,
        beam_width=[WIDTH],
        end_id=[end_id],
        return_log_probs=[True],
        return_generation_logits=[True],
        return_context_logits=[True],
    )
    length = tensors["output_ids"].shape[1]
    assert tensors["output_log_probs"].shape == (1, WIDTH, length)
    assert tensors["cum_log_probs"].shape == (1, WIDTH)
    assert tensors["context_logits"].shape == (1, len(PROMPT), VOCABULARY)
    assert tensors["generation_logits"].shape == (1, WIDTH, length, VOCABULARY)
    for place, row in enumerate(rows_of(tensors)):
        expected = log_probs(reference("llama"), PROMPT, row)
        logits = all_logits(reference("llama"), [*PROMPT, *row])[len(PROMPT) - 1 : -1]
        numpy.testing.assert_allclose(tensors["output_log_probs"][0, place, : len(row)], expected, atol=2e-4)
        numpy.testing.assert_allclose(tensors["cum_log_probs"][0, place], sum(expected), atol=1e-3)
        numpy.testing.assert_allclose(tensors["generation_logits"][0, place, : len(row)], logits, atol=2e-4)


def test_a_stop_word_ends_a_beam(asker: Asker, reference: ReferenceModel) -> None:
    """The shorter beam that a stop word ended is the more likely one without a length penalty."""
    best = beams_of(reference("llama"), 8, length_penalty=0.0)[0]
    ids = best[1:4]
    tensors = asker.ask(count=8, beam_width=[WIDTH], stop_words_list=[[ids, [3, -1, -1]]])
    assert best[:4] in rows_of(tensors)
    assert all(row[:4] != best[:4] or len(row) == 4 for row in rows_of(tensors))


def test_more_beams_than_a_batch_holds(asker: Asker) -> None:
    assert (
        asker.error(beam_width=[33])
        == "`beam_width` must be at most 32, the number of sequences that run at the same time. Given: 33"
    )


@pytest.mark.parametrize(
    "tensors",
    [
        {"streaming": [True]},
        {"runtime_top_k": [5]},
        {"runtime_top_p": [0.5]},
        {"temperature": [0.5]},
        {"draft_input_ids": [4, 5]},
    ],
    ids=lambda tensors: next(iter(tensors)),
)
def test_what_excludes_beams(asker: Asker, tensors: dict[str, Any]) -> None:
    name = next(iter(tensors))
    with pytest.raises(
        Exception, match=rf"^`{name}` and a `beam_width` above 1 cannot be used together\. Given: .+ and 2$"
    ):
        asker.submit(beam_width=[2], **tensors)
