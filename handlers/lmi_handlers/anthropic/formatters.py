"""The output formatters `anthropic`, for whole messages, and `anthropic_stream`, for server-sent events with names."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import uuid4

import orjson
from pydantic_core import from_json

from lmi_core.errors import GenerationFailed, LmiError, RequestAborted
from lmi_core.formatter import ChatAnswer
from lmi_core.generation.output import GeneratedSequence, GenerationOutput
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content
from lmi_handlers.base.anthropic_errors import REQUEST_ID_HEADER, stream_error
from lmi_handlers.chat.pieces import AnswerPiece, ReasoningText
from lmi_handlers.chat.schema import ChatSchemaFormatter, JsonObject, answers

INVALID_JSON = "INVALID_JSON"  # holds input that is not JSON, as documented by Anthropic


@dataclass(frozen=True, slots=True)
class MessageAnswer:
    """The facts about a request for its formatter, in addition to those about any chat."""

    request_id: str
    max_tokens: int  # requested by the client
    max_length: int  # the model's context length
    shows_thinking: bool = True  # if not, the answer only contains empty thinking blocks


class MessageFormatter(ChatSchemaFormatter):
    """The base of both formatters: the message without its content, token counts, and the stop reason."""

    def __init__(self, asked: MessageAnswer, answer: ChatAnswer) -> None:
        super().__init__(answer)
        self.asked = asked
        self.headers = {REQUEST_ID_HEADER: asked.request_id}

    def message(self, content: list[JsonObject], usage: JsonObject) -> JsonObject:
        return {
            "id": self.chat.response_id,
            "type": "message",
            "role": "assistant",
            "model": self.chat.model,
            "content": content,
            **_stop(None),
            "usage": usage,
        }

    def usage(self, output: GenerationOutput) -> JsonObject:
        """Return the token counts; `input_tokens` does not include tokens from the prefix cache."""
        counts = super().usage(output)
        cached = counts.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        usage = {
            "input_tokens": counts["prompt_tokens"] - cached,
            "cache_creation_input_tokens": 0,  # this server has no separate price for writing to a cache
            "cache_read_input_tokens": cached,
            "output_tokens": counts["completion_tokens"],
        }
        if details := counts.get("completion_tokens_details"):
            usage["output_tokens_details"] = {"thinking_tokens": details["reasoning_tokens"]}
        return usage

    def stop(self, output: GenerationOutput, sequence: GeneratedSequence, arguments: str | None) -> JsonObject:
        """Return the stop reason; `arguments` are those of the last tool use, or None.

        Raise RequestAborted or GenerationFailed, because messages have no stop reason for these.
        """
        reason: str
        match sequence.finish_reason:
            case "abort":
                raise RequestAborted("the request was aborted")
            case "error":
                raise GenerationFailed("the engine ended the generation with an error")
            case "length":
                reason = "model_context_window_exceeded" if self._fills_context(output, sequence) else "max_tokens"
            case "stop_sequence" if sequence.stop_sequence is not None and not _is_whole(arguments):
                return _stop("stop_sequence", sequence.stop_sequence)
            case _:
                reason = "end_turn" if arguments is None else "tool_use"
        return _stop(reason)

    def _fills_context(self, output: GenerationOutput, sequence: GeneratedSequence) -> bool:
        """Return whether the context, not the request, limited the length."""
        num_generated = len(sequence.tokens)
        return (
            num_generated < self.asked.max_tokens
            and len(output.request.prompt_ids) + num_generated >= self.asked.max_length
        )


class AnthropicFormatter(MessageFormatter):
    name: ClassVar[str] = "anthropic"
    content_type = "application/json"
    text_path: tuple[str, ...] = ("content", "text")

    def format(self, output: GenerationOutput) -> bytes:
        if not output.finished:
            return b""
        (sequence,) = answers(output)
        blocks = self._blocks(self.new_answer_reader().read_all(sequence.tokens))
        calls = [block.text for block in blocks if block.type == "tool_use"]
        stop = self.stop(output, sequence, calls[-1] if calls else None)
        content = [block.content for block in blocks]
        return orjson.dumps(self.message(content, self.usage(output)) | stop | output.transfer)

    def error(self, error: LmiError) -> bytes:
        return orjson.dumps(stream_error(error, self.asked.request_id))

    def _blocks(self, pieces: Iterable[AnswerPiece]) -> list["WholeBlock"]:
        blocks: list[WholeBlock] = []
        for piece in pieces:
            match piece:
                case ReasoningText(text):
                    shown = text if self.asked.shows_thinking else ""
                    self._extend(blocks, thinking_block("", self.chat.response_id), shown)
                case Content(text):
                    self._extend(blocks, text_block(""), text)
                case CallBegun():
                    blocks.append(WholeBlock(tool_use_block(piece)))
                case CallArguments(_, text):
                    blocks[-1].text += text
        return blocks or [WholeBlock(text_block(""))]

    @staticmethod
    def _extend(blocks: list["WholeBlock"], block: JsonObject, text: str) -> None:
        """Add the text to the last block, or to a new one if its type differs."""
        if not blocks or blocks[-1].type != block["type"]:
            blocks.append(WholeBlock(block))
        blocks[-1].text += text


@dataclass(slots=True)
class WholeBlock:
    """A content block of a whole message, and its text."""

    block: JsonObject
    text: str = ""  # for a tool use, its input as JSON

    @property
    def type(self) -> str:
        return str(self.block["type"])

    @property
    def content(self) -> JsonObject:
        if self.type == "tool_use":
            return {**self.block, "input": tool_input(self.text)}
        return {**self.block, self.type: self.text}  # both other types have a member with their own name


def text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def thinking_block(thinking: str, signature: str) -> JsonObject:
    """Return a thinking block. Clients keep only signed ones; nothing here checks the signature."""
    return {"type": "thinking", "thinking": thinking, "signature": signature}


def tool_use_block(begun: CallBegun) -> JsonObject:
    return {"type": "tool_use", "id": begun.id or f"toolu_{uuid4().hex[:24]}", "name": begun.name, "input": {}}


def tool_input(arguments: str) -> orjson.Fragment:
    """Return the input of a tool use; of a truncated one, the complete part, as Anthropic's client reads streams."""
    if isinstance(_read(arguments), dict):
        return orjson.Fragment(arguments)  # unchanged: its numbers may be larger than Python can write
    try:
        given: Any = from_json(arguments, allow_partial=True, allow_inf_nan=False) if arguments.strip() else {}
    except ValueError:
        given = None
    return orjson.Fragment(json.dumps(given if isinstance(given, dict) else {INVALID_JSON: arguments}))


def _is_whole(arguments: str | None) -> bool:
    """Return whether there is a tool use with complete input."""
    return arguments is not None and (not arguments or _read(arguments) is not None)


def _read(arguments: str) -> Any:
    try:
        return orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None


def _stop(reason: str | None, sequence: str | None = None) -> JsonObject:
    return {"stop_reason": reason, "stop_sequence": sequence, "stop_details": None}


class AnthropicStreamFormatter(MessageFormatter):
    """A message as events: the message without content, its blocks as deltas, and the stop reason."""

    name: ClassVar[str] = "anthropic_stream"
    content_type = "text/event-stream"
    text_path: tuple[str, ...] = ("delta", "text")
    one_sequence = True

    def __init__(self, asked: MessageAnswer, answer: ChatAnswer) -> None:
        super().__init__(asked, answer)
        self._reader = self.new_answer_reader()
        self._blocks = BlockEvents(asked.shows_thinking, answer.response_id)
        self._started = False

    def format(self, output: GenerationOutput) -> list[bytes]:
        step = output.step
        events = [] if self._started else self._start(output)
        for piece in self._reader.read_step(step):
            events += self._blocks.add(piece)
        return events + self._end(output) if step.finish_reason is not None else events

    def error(self, error: LmiError) -> list[bytes]:
        return [event("error", stream_error(error, self.asked.request_id))]

    def _start(self, output: GenerationOutput) -> list[bytes]:
        self._started = True
        message = self.message([], self.usage(output))
        return [event("message_start", {"type": "message_start", "message": message}), PING]

    def _end(self, output: GenerationOutput) -> list[bytes]:
        stop = self.stop(output, output.sequence, self._blocks.arguments)
        ended = {"type": "message_delta", "delta": stop, "usage": self.usage(output)}
        return [*self._blocks.end(), event("message_delta", ended), MESSAGE_STOP]


class BlockEvents:
    """The events of a message's content blocks; common parts of a block's deltas are encoded once."""

    def __init__(self, shows_thinking: bool, signature: str) -> None:
        self.arguments: str | None = None  # of the last tool use, as JSON
        self._shows_thinking = shows_thinking
        self._signature = signature
        self._index = -1
        self._open = ""  # the type of the block that receives deltas
        self._before_delta = b""

    def add(self, piece: AnswerPiece) -> list[bytes]:
        match piece:
            case ReasoningText(text):
                begun = self._begin("thinking", thinking_block("", ""), b'{"type":"thinking_delta","thinking":')
                return begun + ([self._delta(text)] if self._shows_thinking else [])
            case Content(text):
                return [*self._begin("text", text_block(""), b'{"type":"text_delta","text":'), self._delta(text)]
            case CallBegun():
                self.arguments = ""
                block = tool_use_block(piece)
                return self._close() + self._begin("tool_use", block, b'{"type":"input_json_delta","partial_json":')
            case CallArguments(_, text):
                assert self._open == "tool_use", "arguments must follow their call"
                self.arguments = (self.arguments or "") + text
                return [self._delta(text)]

    def end(self) -> list[bytes]:
        """Return the end of the last block; a message without blocks gets an empty text, because clients may expect
        one.
        """
        return [*([] if self._index >= 0 else self._begin("text", text_block(""), b"")), *self._close()]

    def _begin(self, kind: str, block: JsonObject, before: bytes) -> list[bytes]:
        if kind == self._open:
            return []
        closed = self._close()
        self._index += 1
        self._open = kind
        self._before_delta = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":%b'
            % (
                self._index,
                before,
            )
        )
        begun = {"type": "content_block_start", "index": self._index, "content_block": block}
        return [*closed, event("content_block_start", begun)]

    def _delta(self, text: str) -> bytes:
        return self._before_delta + orjson.dumps(text) + b"}}\n\n"

    def _close(self) -> list[bytes]:
        if not self._open:
            return []
        signature = {"type": "signature_delta", "signature": self._signature}
        delta = {"type": "content_block_delta", "index": self._index, "delta": signature}
        signed = [event("content_block_delta", delta)] if self._open == "thinking" else []
        self._open = ""
        return [*signed, event("content_block_stop", {"type": "content_block_stop", "index": self._index})]


def event(name: str, content: object) -> bytes:
    """Return the content as a server-sent event of that name."""
    return f"event: {name}\ndata: ".encode() + orjson.dumps(content) + b"\n\n"


PING = event("ping", {"type": "ping"})
MESSAGE_STOP = event("message_stop", {"type": "message_stop"})
