"""The output formatters of Ollama's two routes, for whole answers and for streams, and the times in answers."""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from typing import ClassVar, NamedTuple

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import ChatAnswer
from lmi_core.generation.output import NO_TOKEN, FinishReason, GenerationOutput, Token
from lmi_core.payloads.exact_json import exact_json, writable
from lmi_handlers.chat.schema import ChatSchemaFormatter, ChatStream, JsonObject, WholeChatFormatter, answers
from lmi_handlers.fields import vllm_schema

logger = logging.getLogger(__name__)
FINISH_REASONS: Mapping[FinishReason | None, str] = {**vllm_schema.FINISH_REASONS, None: "stop"}


class Stopwatch:
    """The times of one answer in nanoseconds, from its creation on."""

    def __init__(self) -> None:
        self._begun = time.perf_counter_ns()
        self._first: int | None = None

    def note_step(self) -> None:
        """Record a generation step; the first one ends the prompt's time."""
        if self._first is None:
            self._first = time.perf_counter_ns()

    def durations(self, prompt_tokens: int, tokens: int) -> dict[str, int]:
        """Return the members for times and counts; the prompt's time includes that in the queue."""
        now = time.perf_counter_ns()
        first = now if self._first is None else self._first
        return {
            "total_duration": now - self._begun,
            "load_duration": 0,  # the model is loaded before the server accepts requests
            "prompt_eval_count": prompt_tokens,
            "prompt_eval_duration": first - self._begun,
            "eval_count": tokens,
            "eval_duration": max(now - first, 1),  # clients divide by it
        }


def format_time(seconds: float | None = None) -> str:
    """Return a time since 1970, by default now, in the form of RFC 3339."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


class MessageStream:
    """The state of one streamed sequence, which returns each tool call when it is complete."""

    def __init__(self, stream: ChatStream) -> None:
        self._stream = stream
        self._call: JsonObject | None = None  # an incomplete call with its arguments so far
        self._num_calls = 0

    def deltas(self, token: Token, last: bool) -> list[JsonObject]:
        deltas: list[JsonObject] = []
        for delta in self._stream.deltas(token, last):
            if "tool_calls" not in delta:
                deltas += [*self._end_call(), delta]
                continue
            (part,) = delta["tool_calls"]
            if "id" in part:
                deltas += self._end_call()
                self._call = {"id": part["id"], "name": part["function"]["name"], "arguments": ""}
            if self._call is not None:
                self._call["arguments"] += part["function"]["arguments"]
        return deltas + (self._end_call() if last else [])

    def _end_call(self) -> list[JsonObject]:
        call, self._call = self._call, None
        if call is None:
            return []
        self._num_calls += 1
        return [_delta(call["id"], self._num_calls - 1, call["name"], call["arguments"])]


def message_with_calls(message: JsonObject) -> JsonObject:
    """Convert a whole message in OpenAI's form to Ollama's content, reasoning and calls."""
    calls = message.get("tool_calls") or ()
    written = [
        _delta(call["id"], place, call["function"]["name"], call["function"]["arguments"])
        for place, call in enumerate(calls)
    ]
    content = "".join([message["content"] or "", *(each.get("content", "") for each in written)])
    kept = {name: value for name, value in message.items() if name != "tool_calls"}
    complete = [call for each in written for call in each.get("tool_calls", ())]
    return {**kept, "content": content} | ({"tool_calls": complete} if complete else {})


def _delta(call_id: str, index: int, name: str, arguments: str) -> JsonObject:
    """Return the delta of a call; a call with truncated arguments becomes content."""
    try:
        value = exact_json(arguments or "{}")
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        function = {"index": index, "name": name, "arguments": writable(value)}
        return {"tool_calls": [{"id": call_id, "function": function}]}
    logger.info("a call of %r is returned as text: its arguments are not a JSON object", name)
    return {"content": f'{{"name": {orjson.dumps(name).decode()}, "arguments": {arguments}'}


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
        """Return the error's object, which ends a stream as its last line."""
        return _line({"error": error.message})

    def line(self, members: JsonObject) -> bytes:
        """Return the line of an object with the common members, then these."""
        return self._before + format_time().encode() + b'",' + _line(members)[1:]

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

    @cached_property
    def _stream(self) -> MessageStream:
        return MessageStream(self.new_stream())

    def format(self, output: GenerationOutput) -> list[bytes]:
        self.stopwatch.note_step()
        ended = output.step.finish_reason is not None
        tokens = output.step.tokens or ([NO_TOKEN] if ended else [])
        lines: list[bytes] = []
        for place, token in enumerate(tokens, start=1):
            lines += self._lines(token, self._stream.deltas(token, ended and place == len(tokens)))
        return [*lines, self.line(self.members({}) | self.end(output))] if ended else lines

    def _lines(self, token: Token, deltas: list[JsonObject]) -> list[bytes]:
        """Return the lines of a token; the first has its log probability."""
        details = {} if token is NO_TOKEN else self.log_probs([token])
        members = [self.members(delta) | {"done": False} for delta in deltas or ([{}] if details else [])]
        if members:
            members[0] |= details
        return [self.line(each) for each in members]


def _line(content: JsonObject) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
