"""What of a request is left once vLLM's engine has died under it."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from lmi_core.errors import GenerationFailed
from lmi_core.generation.output import GenerationStep, Given, Token
from lmi_plugins.backends.vllm_parameters import VllmEngineParameters
from lmi_plugins.vllm_engine.requests.resuming import goes_on, repeats, rest, shorten
from lmi_plugins.vllm_engine.requests.sampling import sampling_params

SAMPLED = {"do_sample": True, "temperature": 0.7}
SEEDED = {**SAMPLED, "seed": 3}


@pytest.mark.parametrize(
    ("given", "on", "again"),
    [
        ({}, True, True),
        ({"seed": 3}, True, True),  # greedy, whatever the seed
        ({"do_sample": True, "temperature": 0.0}, True, True),
        (SAMPLED, True, False),
        (SEEDED, False, True),  # a generator's numbers begin anew
        ({"repetition_penalty": 1.2}, True, True),  # counts the prompt too
        ({"logit_bias": {"5": 2.0}, "min_length": 4, "allowed_token_ids": [5, 6]}, True, True),
        ({"stop_sequences": ["end"], "logprobs": 2}, True, True),
        ({"presence_penalty": 0.5}, False, True),
        ({"frequency_penalty": 0.5}, False, True),
        ({"frequency_penalty": 0.5, **SAMPLED}, False, False),
        ({"repetition_detection": {"max_pattern_size": 3, "min_count": 2}}, False, True),
        ({"guided_regex": "[a-z]+"}, False, True),
        ({"guided_json": {"type": "object"}, **SAMPLED}, False, False),
        ({"guided_json": {"type": "object"}, **SEEDED}, False, True),
        ({"no_repeat_ngram_size": 3}, False, True),
        ({"typical_p": 0.5, **SAMPLED}, False, False),
        ({"vllm_fields": {"vllm_xargs": {"own": 1}}}, False, True),
    ],
)
def test_how_a_request_goes_on(given: dict[str, Any], on: bool, again: bool) -> None:
    parameters = VllmEngineParameters(**given)
    assert (goes_on(parameters), repeats(parameters)) == (on, again)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Given(), (20, 12, 0)),  # nothing was told of the prompt either
        (Given([], begun=True), (20, 12, None)),
        (Given([1, 2, 3], begun=True), (17, 9, None)),
        (Given([1] * 15, begun=True), (5, 0, None)),
    ],
)
def test_what_was_given_shortens_the_rest(given: Given, expected: tuple[int, int, int | None]) -> None:
    parameters = VllmEngineParameters(max_new_tokens=20, min_length=12, decoder_input_details=True, details=True)
    sampling = sampling_params(parameters, 0, log_probs=True)
    shorten(sampling, given)
    assert (sampling.max_tokens, sampling.min_tokens, sampling.prompt_logprobs) == expected


def step(*ids: int, index: int = 0, **told: Any) -> GenerationStep:
    return GenerationStep([Token(i, str(i)) for i in ids], sequence_index=index, **told)


class Repeated:
    """The steps of a request that is run again."""

    def __init__(self, *steps: GenerationStep) -> None:
        self._steps = steps
        self.closed = False

    async def run(self) -> AsyncGenerator[GenerationStep, None]:
        try:
            for each in self._steps:
                yield each
        finally:
            self.closed = True

    async def left(self, *given: Given) -> list[GenerationStep]:
        return [each async for each in rest(self.run(), list(given))]


async def test_what_was_given_is_left_out() -> None:
    """Steps may be cut elsewhere than those before were, and tell of the prompt once."""
    prompt = [Token(9, "9")]
    repeated = Repeated(
        step(1, prefill=prompt, cached_tokens=4, queue_time=0.5), step(2, 3, 4), step(5), step(finish_reason="length")
    )
    given = Given([1, 2], begun=True)
    assert await repeated.left(given) == [step(3, 4), step(5), step(finish_reason="length")]
    assert given.token_ids == [1, 2]
    assert repeated.closed


async def test_a_sequence_that_had_not_begun_is_told_as_a_whole() -> None:
    prompt = [Token(9, "9")]
    first = step(1, prefill=prompt, cached_tokens=4, queue_time=0.5)
    assert await Repeated(first, step(2, finish_reason="eos_token")).left(Given()) == [
        step(1, prefill=prompt, cached_tokens=4, queue_time=0.5),
        step(2, finish_reason="eos_token"),
    ]


async def test_one_that_began_without_tokens_is_not_told_of_its_prompt_twice() -> None:
    """A first step may have no tokens, where they end inside a character."""
    repeated = Repeated(step(prefill=[Token(9, "9")], cached_tokens=4), step(1, finish_reason="length"))
    assert await repeated.left(Given([], begun=True)) == [step(1, finish_reason="length")]


async def test_sequences_go_on_each_by_itself_and_those_that_ended_stay_so() -> None:
    repeated = Repeated(
        step(1, index=0),
        step(7, index=1, finish_reason="eos_token"),
        step(5, index=2),
        step(2, index=0, finish_reason="length"),
        step(6, index=2, finish_reason="length"),
    )
    assert await repeated.left(
        Given([1], begun=True), Given([7], begun=True, finished=True), Given([], begun=False)
    ) == [step(5, index=2), step(2, index=0, finish_reason="length"), step(6, index=2, finish_reason="length")]


@pytest.mark.parametrize("steps", [[step(1), step(8)], [step(1, 8, 3)]])
async def test_other_tokens_are_an_error(steps: list[GenerationStep]) -> None:
    repeated = Repeated(*steps)
    with pytest.raises(GenerationFailed, match="the next one chose other tokens for the same request"):
        await repeated.left(Given([1, 2], begun=True))
    assert repeated.closed


async def test_closing_it_closes_the_request() -> None:
    repeated = Repeated(step(1), step(2), step(3))
    left = rest(repeated.run(), [Given([1], begun=True)])
    assert await anext(left) == step(2)
    await left.aclose()
    assert repeated.closed
