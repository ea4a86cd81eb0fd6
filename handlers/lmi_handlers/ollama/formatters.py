"""The output formatters of Ollama's two routes, for whole answers and for streams."""

from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import orjson

from lmi_core.chat_formatter import ChatAnswer
from lmi_core.errors import LmiError
from lmi_core.generation.output import NO_TOKEN, FinishReason, GenerationOutput, Token
from lmi_handlers.chat.schema import ChatSchemaFormatter, JsonObject, WholeChatFormatter, answers
from lmi_handlers.ollama.calls import MessageStream, message_with_calls
from lmi_handlers.ollama.stopwatch import Stopwatch, written_time

FINISH_REASONS: Mapping[FinishReason | None, str] = {
    None: "stop",
    "length": "length",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "error": "error",
    "abort": "abort",
}


class Members(NamedTuple):
    """The form of a route's deltas and whole messages, and the path of the text."""

    of: Callable[[JsonObject], JsonObject]
    text_path: tuple[str, ...]


def _chat_members(delta: JsonObject) -> JsonObject:
    """Return the members of `/api/chat` for generated output."""
    message = {"role": "assistant", "content": delta.get("content", "")}
    if "reasoning" in delta:
        message["thinking"] = delta["reasoning"]
    if "tool_calls" in delta:
        message["tool_calls"] = delta["tool_calls"]
    return {"message": message}


def _generate_members(delta: JsonObject) -> JsonObject:
    """Return the members of `/api/generate` for generated output."""
    members = {"response": delta.get("content", "")}
    if "reasoning" in delta:
        members["thinking"] = delta["reasoning"]
    return members


CHAT_MEMBERS = Members(_chat_members, ("message", "content"))
GENERATE_MEMBERS = Members(_generate_members, ("response",))


class OllamaFormatter(ChatSchemaFormatter):
    """The base of both formatters: the common members of an answer's objects."""

    def __init__(self, answer: ChatAnswer, stopwatch: Stopwatch, members: Members) -> None:
        super().__init__(answer)
        self.stopwatch = stopwatch
        self.members = members.of
        self.text_path = members.text_path
        self._before = orjson.dumps({"model": answer.model})[:-1] + b',"created_at":"'  # identical in every line

    def error(self, error: LmiError) -> bytes:
        return error_line(error)

    def line(self, members: JsonObject) -> bytes:
        """Return the line of an object with the common members, then these."""
        return self._before + written_time().encode() + b'",' + _line(members)[1:]

    def end(self, output: GenerationOutput) -> JsonObject:
        """Return the members about the end of the answer."""
        usage = output.usage
        counts = self.stopwatch.durations(usage.prompt_tokens, usage.generated_tokens)
        return {"done": True, "done_reason": FINISH_REASONS[output.finish_reason], **counts}

    def log_probs(self, tokens: list[Token]) -> JsonObject:
        """Return the member for log probabilities, if the client asked for them."""
        if not self.chat.log_probs:
            return {}
        places = self.log_prob_content(tokens)
        return {"logprobs": [{name: value for name, value in each.items() if value != []} for each in places]}


class OllamaWholeFormatter(OllamaFormatter, WholeChatFormatter):
    name: ClassVar[str] = "ollama"
    content_type = "application/json"

    def format(self, output: GenerationOutput) -> bytes:
        self.stopwatch.note_step()
        return super().format(output)

    def whole(self, output: GenerationOutput) -> bytes:
        (sequence,) = answers(output)
        message = message_with_calls(self.message(sequence))
        members = self.members(message) | self.end(output) | self.log_probs(sequence.tokens)
        return self.line(members).removesuffix(b"\n")


class OllamaStreamFormatter(OllamaFormatter):
    """Lines of JSON: one for each token with output, and a last one with times and counts."""

    name: ClassVar[str] = "ollama_stream"
    one_sequence = True
    content_type = "application/x-ndjson"

    def __init__(self, answer: ChatAnswer, stopwatch: Stopwatch, members: Members) -> None:
        super().__init__(answer, stopwatch, members)
        self._stream: MessageStream | None = None

    def format(self, output: GenerationOutput) -> list[bytes]:
        self.stopwatch.note_step()
        if self._stream is None:
            self._stream = MessageStream(self.new_stream())
        ended = output.step.finish_reason is not None
        tokens = output.step.tokens or ([NO_TOKEN] if ended else [])
        lines: list[bytes] = []
        for place, token in enumerate(tokens, start=1):
            lines += self._lines(token, self._stream.deltas(token, ended and place == len(tokens)))
        return [*lines, self.line(self.members({}) | self.end(output))] if ended else lines

    def _lines(self, token: Token, deltas: list[JsonObject]) -> list[bytes]:
        """Return the lines of a token; the first has its log probability."""
        details = {} if token is NO_TOKEN else self.log_probs([token])
        if details and not deltas:
            deltas = [{}]
        lines: list[bytes] = []
        for delta in deltas:
            members = self.members(delta)
            members["done"] = False
            if details and not lines:
                members |= details
            lines.append(self.line(members))
        return lines


def error_line(error: LmiError) -> bytes:
    """Return the error's object, which ends a stream as its last line."""
    return _line({"error": error.message})


def _line(content: JsonObject) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
