from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from lmi_core.generation.parameters import SAMPLING_NAMES
from lmi_plugins.torch_engine.messages.requests import SamplingParameters
from lmi_plugins.torch_engine.sampling.processing import process, processors_of
from lmi_plugins.torch_engine.sampling.warpers import SAMPLING
from tests.plugins.torch_engine.bare_sequences import PROMPT, VOCABULARY, logits, sequence

END_ID = 7
GENERATED = (20, 4, 21, 20)  # after a prompt of 3, 4, 4, 9

PARAMETERS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0},
    {"temperature": 0.3},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 0.7, "top_k": 7},
    {"temperature": 1.0, "top_k": -1},
    {"temperature": 1.0, "top_k": 10_000},
    {"temperature": 2.0, "top_p": 0.9},
    {"temperature": 1.0, "top_p": 1e-6},
    {"temperature": 1.5, "top_k": 12, "top_p": 0.6},
    {"temperature": 0.9, "repetition_penalty": 1.3},
    {"repetition_penalty": 0.5},
    {"temperature": 0.9, "repetition_penalty": 0.5, "top_k": 20, "top_p": 0.8},
    {"temperature": 1.0, "min_p": 0.05},
    {"temperature": 3.0, "min_p": 1.0},
    {"temperature": 1.0, "typical_p": 0.3},
    {"temperature": 2.0, "typical_p": 0.95},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"temperature": 0.5, "no_repeat_ngram_size": 3},
    {"no_repeat_ngram_size": 100},
    {"bad_sequences": [[11], [20, 30], [21, 20, 31], [9, 32], [END_ID], [*PROMPT, *GENERATED, *PROMPT]]},
    {"min_length": 4},
    {"min_length": 5},
    {"logit_bias": {0: 5.0, 20: -100.0, 49: 0.5}},
    {"logit_bias": {20: 3.0}, "repetition_penalty": 2.0, "no_repeat_ngram_size": 2, "min_length": 9},
    {"temperature": 1.3, "top_k": 30, "top_p": 0.9, "min_p": 0.02, "typical_p": 0.9, "bad_sequences": [[11]]},
]


def reference_processors(parameters: dict[str, Any]) -> LogitsProcessorList:
    """Return transformers' logits processors in the order of its `generate`."""
    made: dict[str, Any] = {
        "logit_bias": lambda bias: SequenceBiasLogitsProcessor([[[i], float(added)] for i, added in bias.items()]),
        "repetition_penalty": RepetitionPenaltyLogitsProcessor,
        "no_repeat_ngram_size": NoRepeatNGramLogitsProcessor,
        "bad_sequences": lambda bad: NoBadWordsLogitsProcessor(bad, END_ID),
        "min_length": lambda count: MinNewTokensLengthLogitsProcessor(len(PROMPT), count, END_ID, device="cpu"),
        "temperature": TemperatureLogitsWarper,
        "top_k": TopKLogitsWarper,
        "top_p": TopPLogitsWarper,
        "min_p": MinPLogitsWarper,
        "typical_p": TypicalLogitsWarper,
    }
    asked = [make(parameters[name]) for name, make in made.items() if parameters.get(name, -1) != -1]
    return LogitsProcessorList(asked)


def expected_scores(row: torch.Tensor, parameters: dict[str, Any]) -> torch.Tensor:
    ids: Any = torch.tensor([[*PROMPT, *GENERATED]])
    scores: Any = row[None]
    processed: torch.Tensor = reference_processors(parameters)(ids, scores)[0]
    return processed


def request(parameters: dict[str, Any]) -> Any:
    asked = sequence(GENERATED, **parameters)
    asked.eos_token_ids = frozenset([END_ID])
    return asked


def test_each_sampler_has_a_name_with_which_dialects_sample() -> None:
    alone: list[dict[str, Any]] = [{"temperature": 1.0, name: 0.5} for name in SAMPLING_NAMES]
    assert {processors_of(SamplingParameters(**each)) for each in alone} == {(sampler,) for sampler in SAMPLING}


@pytest.mark.parametrize("together", [True, False])
def test_processes_logits_as_transformers_does(together: bool) -> None:
    rows = logits(len(PARAMETERS))
    before = rows.clone()
    batches = [range(len(PARAMETERS))] if together else [[place] for place in range(len(PARAMETERS))]
    for batch in batches:
        scores = process(rows[list(batch)], [request(PARAMETERS[place]) for place in batch])
        for place, row in zip(batch, scores, strict=True):
            assert torch.equal(row, expected_scores(rows[place], PARAMETERS[place])), PARAMETERS[place]
    assert torch.equal(rows, before)


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("name", ["top_p", "typical_p"])
def test_large_vocabularies_are_filtered_as_transformers_does(name: str, spread: float) -> None:
    """Excluding tokens from the sort does not change the result."""
    shares = [0.01, 0.3, 0.9, 0.999]
    rows = torch.randn(len(shares), 5000, generator=torch.Generator().manual_seed(1)) * spread
    cases: list[dict[str, Any]] = [{"temperature": 1.0, name: share} for share in shares]
    scores = process(rows, [request(case) for case in cases])
    for row, before, case in zip(scores, rows, cases, strict=True):
        assert torch.equal(row, expected_scores(before, case)), case


def test_each_case_changes_something() -> None:
    """Each case changes the scores, except for filters that keep everything."""
    rows = logits(len(PARAMETERS))
    same = [
        parameters
        for row, parameters in zip(rows, PARAMETERS, strict=True)
        if torch.equal(expected_scores(row, parameters), row)
    ]
    wide = [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": -1}, {"temperature": 1.0, "top_k": 10_000}]
    assert same == [*wide, {"no_repeat_ngram_size": 100}, {"min_length": 4}]


def test_min_length_of_the_whole_is_that_of_what_is_generated() -> None:
    reference: Any = MinLengthLogitsProcessor(len(PROMPT) + 5, END_ID, device="cpu")
    row = logits(1)
    expected = reference(torch.tensor([[*PROMPT, *GENERATED]]), row)
    assert torch.equal(process(row, [request({"min_length": 5})]), expected)


def test_min_length_holds_stop_tokens_back() -> None:
    early = request({"min_length": 5, "stop_token_sequences": [[30], [31, 32]], "ignore_end": True})
    assert process(logits(1), [early])[0].isneginf().nonzero()[:, 0].tolist() == [30]


def test_frequency_and_presence_count_generated_tokens() -> None:
    rows = torch.zeros(3, VOCABULARY)
    frequency, presence = request({"frequency_penalty": 0.5}), request({"presence_penalty": -1.5})
    both = request({"frequency_penalty": 1.0, "presence_penalty": 2.0, "repetition_penalty": 2.0})
    rows[2] = 8.0
    scores = process(rows, [frequency, presence, both])
    # 20 was generated twice, 4 and 21 once; 3, 4 and 9 are of the prompt.
    assert {i: scores[0, i].item() for i in (3, 4, 9, 20, 21)} == {3: 0, 4: -0.5, 9: 0, 20: -1.0, 21: -0.5}
    assert {i: scores[1, i].item() for i in (3, 4, 9, 20, 21)} == {3: 0, 4: 1.5, 9: 0, 20: 1.5, 21: 1.5}
    assert {i: scores[2, i].item() for i in (0, 3, 4, 20, 21)} == {0: 8, 3: 4, 4: 1, 20: 0, 21: 1}


def test_frequency_and_presence_may_count_the_prompt() -> None:
    given = request({"frequency_penalty": 1.0, "presence_penalty": 2.0, "penalize_prompt": True})
    scores = process(torch.zeros(1, VOCABULARY), [given])[0]
    # 4 is twice in the prompt, and was generated once.
    assert {i: scores[i].item() for i in (0, 3, 4, 9, 20, 21)} == {0: 0, 3: -3, 4: -5, 9: -3, 20: -4, 21: -3}


def test_a_bias_over_the_vocabulary_adds_to_the_bias_of_single_tokens() -> None:
    bias = logits(1, seed=5)[0]
    biased = sequence(embedding_bias=bias.numpy().astype("<f4").tobytes(), logit_bias={3: 2.0})
    expected = bias.clone()
    expected[3] += 2.0
    assert torch.equal(process(torch.zeros(1, VOCABULARY), [biased])[0], expected)


@pytest.mark.parametrize(
    "parameters",
    [
        {"repetition_penalty": 2.0},
        {"frequency_penalty": 1.0},
        {"no_repeat_ngram_size": 2},
        {"no_repeat_ngram_size": 1},
        {"min_length": 3},
    ],
)
def test_tokens_that_come_and_go_are_followed(parameters: dict[str, Any]) -> None:
    """State that is updated step by step equals the state computed from all tokens at once."""
    row = logits(1)
    followed = request(parameters)
    for changes in [(), (4,), (9, 4), (4, 4, 3)]:
        followed.token_ids += changes
        process(row, [followed])
    for length in (12, 9, 8):
        del followed.token_ids[length:]
        fresh = request(parameters)
        fresh.token_ids = list(followed.token_ids)
        assert torch.equal(process(row, [followed]), process(row, [fresh]))


def test_a_fork_goes_its_own_way() -> None:
    row = torch.zeros(1, VOCABULARY)
    first = request({"frequency_penalty": 1.0, "no_repeat_ngram_size": 2})
    process(row, [first])
    second = first.fork([])
    first.token_ids += [40, 41]
    second.token_ids += [40, 42]
    scores = process(row.expand(2, -1), [first, second])
    assert (scores[0] - scores[1]).nonzero()[:, 0].tolist() == [41, 42]


def test_nothing_asked_for_costs_nothing() -> None:
    rows = logits(2)
    assert process(rows, [sequence(), sequence(temperature=1.0)]) is rows


def test_ids_beyond_the_vocabulary_are_no_tokens() -> None:
    virtual = sequence(repetition_penalty=2.0, no_repeat_ngram_size=1)
    virtual.token_ids[:2] = [VOCABULARY, VOCABULARY + 1]
    assert process(torch.ones(1, VOCABULARY), [virtual]).isneginf().nonzero()[:, 1].tolist() == [4, 9]
