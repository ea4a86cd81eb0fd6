import pytest
from pydantic import Field

from lmi_core.generation.output import FinishReason, GeneratedSequence, GenerationOutput, GenerationStep, Token
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.generation.request import ValidRequest


class Parameters(GenerationParameters):
    n: int = Field(1)
    ranked: bool = Field(False)

    @property
    def num_sequences(self) -> int:
        return self.n

    @property
    def best_first(self) -> bool:
        return self.ranked


def request(prompt: str, sequences: int = 1) -> ValidRequest:
    return ValidRequest(prompt, prompt, [1], Parameters(n=sequences))


def step(
    text: str, reason: FinishReason | None = None, index: int = 0, log_prob: float = -1.0, prompt_index: int = 0
) -> GenerationStep:
    return GenerationStep([Token(0, text, log_prob)], reason, index, prompt_index=prompt_index)


def texts(output: GenerationOutput) -> list[str]:
    return [sequence.text for sequence in output.sequences]


def test_sequence() -> None:
    sequence = GeneratedSequence()
    assert (sequence.text, sequence.tokens, sequence.finish_reason) == ("", [], None)
    sequence.extend(GenerationStep([Token(1, "Deep", -0.5), Token(2, "", None, special=True)]))
    assert sequence.text == "Deep"
    sequence.extend(GenerationStep([Token(3, " Learning", -0.25)]))
    sequence.extend(GenerationStep([], "length"))
    assert sequence.text == sequence.text == "Deep Learning"
    assert [token.id for token in sequence.tokens] == [1, 2, 3]
    assert sequence.cumulative_log_prob == -0.75
    assert sequence.finish_reason == "length"


def test_one_prompt() -> None:
    output = GenerationOutput([request("a")])
    assert not output.finished
    assert (output.step.tokens, output.prefill) == ([], [None])
    first, last = step("x"), step("y", "eos_token")
    output.add(first)
    assert output.step is first
    assert output.sequence is output.sequences[0]
    assert not output.finished
    output.add(last)
    assert output.step is last
    assert output.finished
    assert texts(output) == ["xy"]


def test_sequences_of_each_prompt_in_turn() -> None:
    requests = [request("a", 2), request("b"), request("c", 3)]
    output = GenerationOutput(requests)
    places = [(2, 1), (0, 0), (1, 0), (2, 2), (0, 1), (2, 0)]
    for prompt_index, index in places:
        output.add(step(f"{prompt_index}.{index}", index=index, prompt_index=prompt_index))
        assert output.prompt_index == prompt_index
        assert output.request is requests[prompt_index]
        assert output.sequence.text == f"{prompt_index}.{index}"
    assert texts(output) == ["0.0", "0.1", "1.0", "2.0", "2.1", "2.2"]


def test_finished_with_the_last_sequence() -> None:
    output = GenerationOutput([request("a", 2), request("b")])
    for prompt_index, index in [(0, 1), (1, 0)]:
        output.add(step("x", "length", index, prompt_index=prompt_index))
        assert not output.finished
    output.add(step("x"))
    assert not output.finished
    output.add(step("x", "stop_sequence"))
    assert output.finished
    assert [sequence.finish_reason for sequence in output.sequences] == ["stop_sequence", "length", "length"]


def test_best_sequence_is_the_likeliest() -> None:
    output = GenerationOutput([request("a", 3)])
    for index, log_prob in enumerate([-2.0, -0.5, -3.0]):
        output.add(step("x", index=index, log_prob=log_prob))
    assert output.best_sequence is output.sequences[1]
    output.add(step("y", index=1, log_prob=-2.0))
    assert output.best_sequence is output.sequences[0]


def test_best_sequences() -> None:
    output = GenerationOutput([request("a", 3)])
    for index, log_prob in enumerate([-2.0, -0.5, -3.0]):
        output.add(step("x", index=index, log_prob=log_prob))
    first, second, third = output.sequences
    assert output.best_sequences(1) == [second]
    assert output.best_sequences(2) == [second, first]
    assert output.best_sequences(3) == output.best_sequences(4) == [first, second, third]


def test_sequences_that_the_backend_ranks_keep_its_order() -> None:
    output = GenerationOutput([ValidRequest("a", "a", [1], Parameters(n=3, ranked=True))])
    for index, log_prob in enumerate([-2.0, -0.5, -3.0]):
        output.add(step("x", index=index, log_prob=log_prob))
    assert output.best_sequence is output.sequences[0]
    assert output.best_sequences(2) == output.sequences[:2]


def test_prefill_of_each_prompt() -> None:
    output = GenerationOutput([request("a"), request("b")])
    prefill = [Token(1, "b")]
    output.add(GenerationStep([], prefill=prefill, prompt_index=1))
    output.add(step("x", prompt_index=1))
    assert output.prefill == [None, prefill]


@pytest.mark.parametrize("prompts", [1, 3])
def test_request_before_the_first_step(prompts: int) -> None:
    requests = [request(str(place)) for place in range(prompts)]
    output = GenerationOutput(requests)
    assert output.request is requests[0]
    assert output.sequence is output.sequences[0]


def test_best_sequences_of_each_prompt() -> None:
    output = GenerationOutput([request("a", 2), request("b", 2)])
    for prompt_index, index, log_prob in ((0, 0, -2.0), (0, 1, -3.0), (1, 0, -4.0), (1, 1, -1.0)):
        output.add(step("x", index=index, log_prob=log_prob, prompt_index=prompt_index))
    assert output.best_sequences(1, 0) == output.sequences[:1]
    assert output.best_sequences(1, 1) == output.sequences[3:]
    assert output.best_sequences(2, 1) == output.sequences[2:]


def test_cached_tokens_of_every_prompt() -> None:
    output = GenerationOutput([request("a"), request("b")])
    output.add(step("x"))
    assert output.cached_tokens is None, "the engine has told nothing"
    for prompt_index, cached in ((1, 0), (0, 32)):
        output.add(GenerationStep([], prompt_index=prompt_index, cached_tokens=cached))
        output.add(step("y", "length", prompt_index=prompt_index))
        assert output.cached_tokens == cached
