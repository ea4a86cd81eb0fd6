"""Output formatters of Triton's generate extension: one JSON object, or server-sent events with one for each step."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import GeneratedSequence, GenerationOutput, Token
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.generation.request import ValidRequest
from lmi_handlers.fields import vllm_schema

EVENTS = "text/event-stream; charset=utf-8"


class Part(NamedTuple):
    """The tokens and text of one sequence in an answer: all of them, or those of one step."""

    sequence: GeneratedSequence
    tokens: Sequence[Token]
    text: str


# The names are from Triton's vLLM backend; the last two are from TensorRT-LLM.
ADDITIONAL_OUTPUTS: Mapping[str, Callable[[Part], Any]] = {
    "finish_reason": lambda part: vllm_schema.FINISH_REASONS[part.sequence.finish_reason],
    "cumulative_logprob": lambda part: part.sequence.cumulative_log_prob,
    "logprobs": lambda part: orjson.dumps(vllm_schema.logprobs(part.tokens)).decode(),
    "num_output_tokens": lambda part: len(part.tokens),
    "cum_log_probs": lambda part: part.sequence.cumulative_log_prob,
    "output_log_probs": lambda part: [token.log_prob for token in part.tokens],
}


class TritonFormatter(OutputFormatter):
    name: ClassVar[str] = "triton"
    content_type = "application/json"
    text_path: tuple[str, ...] = ("text_output",)

    def __init__(self, head: Mapping[str, str], outputs: Collection[str], count: int) -> None:
        self._head = head  # first members: the request's id, the model's name and version
        self._outputs = outputs
        self._count = count  # number of sequences in the answer

    def format(self, output: GenerationOutput) -> bytes:
        answer = self.latest(output)
        return b"" if answer is None else self.frame(answer)

    def latest(self, output: GenerationOutput) -> dict[str, Any] | None:
        """Return the answer after the latest generation step; None if there is nothing to send yet."""
        if not output.finished:
            return None
        parts = [
            Part(found, found.tokens, _begin(request) + found.text)
            for index, request in enumerate(output.requests)
            for found in output.best_sequences(self._count, index)
        ]
        return self.answer(output.requests, parts)

    def reads_ranks(self, parameters: GenerationParameters) -> bool:
        return "logprobs" in self._outputs

    def error(self, error: LmiError) -> bytes:
        return self.frame({"error": error.message})

    def frame(self, answer: Mapping[str, Any]) -> bytes:
        """Return the encoded answer, as an event in a stream."""
        return orjson.dumps(answer)

    def answer(self, requests: Sequence[ValidRequest], parts: Sequence[Part]) -> dict[str, Any]:
        """Return the answer's members, as scalars for one sequence and lists for several."""
        answer: dict[str, Any] = {**self._head, "text_output": scalar([part.text for part in parts])}
        for name, of_part in ADDITIONAL_OUTPUTS.items():
            if name in self._outputs:
                answer[name] = scalar([of_part(part) for part in parts])
        if "num_input_tokens" in self._outputs:
            answer["num_input_tokens"] = scalar([len(request.prompt_ids) for request in requests])
        return answer


class TritonWholeEventFormatter(TritonFormatter):
    """A stream whose only event is the complete answer."""

    name: ClassVar[str] = "triton_event"
    errors_are_events: ClassVar[bool] = True
    content_type = EVENTS

    def frame(self, answer: Mapping[str, Any]) -> bytes:
        return b"data: " + orjson.dumps(answer) + b"\n\n"


class TritonStreamFormatter(TritonWholeEventFormatter):
    """A stream with an event for each step and the text generated in it."""

    name: ClassVar[str] = "triton_stream"

    def __init__(self, head: Mapping[str, str], outputs: Collection[str], count: int) -> None:
        super().__init__(head, outputs, count)
        self._begun: set[int] = set()  # sequences whose first text, a prompt, has been sent

    def latest(self, output: GenerationOutput) -> dict[str, Any] | None:
        step = output.step
        if not step.tokens and step.finish_reason is None:
            return None
        return self.answer([output.request], [self._part(output, i) for i in range(self._count)])

    def _part(self, output: GenerationOutput, index: int) -> Part:
        if index != output.step.sequence_index:
            return Part(output.sequences[index], [], "")
        tokens = output.step.tokens
        begin = "" if index in self._begun else _begin(output.request)
        self._begun.add(index)
        return Part(output.sequence, tokens, begin + "".join([token.text for token in tokens]))


def _begin(request: ValidRequest) -> str:
    return request.prompt if request.parameters.return_full_text else ""


def scalar(values: Any) -> Any:
    """Return values as Triton does: a list, or the value alone if there is one."""
    return values[0] if len(values) == 1 else values
