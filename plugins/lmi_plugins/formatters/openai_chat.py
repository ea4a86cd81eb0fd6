"""`openai_chat` and `openai_chat_stream`: the answers of OpenAI's chat completions."""

from collections.abc import Callable
from typing import Any, ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation import FinishReason, GeneratedSequence, GenerationOutput, Token
from lmi_core.hookspecs import hookimpl
from lmi_plugins.formatters.chat_schema import (
    NO_TOKEN,
    ChatFormatter,
    ChatStream,
    JsonObject,
    WholeChatFormatter,
    answers,
)
from lmi_plugins.formatters.openai_schema import FINISH_REASONS, ChunkEvents, error_events, error_object


def finish_reason(reason: FinishReason | None, called: bool) -> str | None:
    """A call that ended by itself tells so; where the client named the function, `called` is false."""
    return "tool_calls" if called and reason in ("eos_token", "stop_sequence") else FINISH_REASONS[reason]


class OpenAiChatFormatter(WholeChatFormatter):
    name: ClassVar[str] = "openai_chat"
    content_type = "application/json"

    def whole(self, output: GenerationOutput) -> bytes:
        choices = [self._choice(index, sequence) for index, sequence in enumerate(answers(output))]
        return orjson.dumps(
            self.response("chat.completion", choices) | {"model": self.model, "usage": self.usage(output)},
        )

    def error(self, error: LmiError) -> bytes:
        return orjson.dumps(error_object(error))

    def _choice(self, index: int, sequence: GeneratedSequence) -> JsonObject:
        message = self.message(sequence)
        called = "tool_calls" in message and not self.named_tool
        log_probs = {"content": self.log_prob_content(sequence.tokens), "refusal": None}
        return {
            "index": index,
            "message": message | {"refusal": None},
            "logprobs": log_probs if self.log_probs else None,
            "finish_reason": finish_reason(sequence.finish_reason, called),
        }


class OpenAiChatStreamFormatter(ChatFormatter):
    """Server-sent events: the role, what each token brings, the finish reason, for each choice; then `[DONE]`."""

    name: ClassVar[str] = "openai_chat_stream"
    content_type = "text/event-stream"

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._streams: dict[int, ChatStream] = {}
        self._events = ChunkEvents(self.head("chat.completion.chunk") | {"model": self.model}, self.include_usage)

    def format(self, output: GenerationOutput) -> list[bytes]:
        if self.continuous_usage:
            self._events.count(self.usage(output))
        step = output.step
        index = step.sequence_index
        events = [] if index in self._streams else [self._begin(index)]
        ended = step.finish_reason is not None
        tokens = step.tokens or ([NO_TOKEN] if ended else [])
        for place, token in enumerate(tokens, start=1):
            events += self._brought(index, token, last=ended and place == len(tokens))
        if ended:
            called = self._streams[index].called and not self.named_tool
            events.append(self._chunk(index, {}, [], finish_reason(step.finish_reason, called)))
        return events + self._events.end(lambda: self.usage(output)) if output.finished else events

    def error(self, error: LmiError) -> list[bytes]:
        return error_events(error)

    def _begin(self, index: int) -> bytes:
        self._streams[index] = self.new_stream()
        return self._chunk(index, {"role": "assistant", "content": ""}, [])

    def _brought(self, index: int, token: Token, *, last: bool) -> list[bytes]:
        """What a token changes, the first time with its log probability."""
        deltas = self._streams[index].deltas(token, last)
        log_probs = self.log_prob_content([token]) if self.log_probs else []
        if log_probs and not deltas:
            deltas = [{}]
        return [self._chunk(index, delta, [] if place else log_probs) for place, delta in enumerate(deltas)]

    def _chunk(self, index: int, delta: JsonObject, content: list[JsonObject], reason: str | None = None) -> bytes:
        log_probs = {"content": content, "refusal": None} if content else None
        choice = {"index": index, "delta": delta, "logprobs": log_probs, "finish_reason": reason}
        return self._events.choice(choice)


@hookimpl
def lmi_register_formatters(register: Callable[[type[OutputFormatter]], None]) -> None:
    register(OpenAiChatFormatter)
    register(OpenAiChatStreamFormatter)
