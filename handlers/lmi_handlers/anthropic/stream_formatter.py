"""The output formatter `anthropic_stream`: a message as server-sent events, each with a name."""

from typing import ClassVar

import orjson

from lmi_core.chat_formatter import ChatAnswer
from lmi_core.errors import LmiError
from lmi_core.generation.output import NO_TOKEN, GenerationOutput
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content
from lmi_handlers.anthropic.formatters import (
    MessageAnswer,
    MessageFormatter,
    text_block,
    thinking_block,
    tool_use_block,
)
from lmi_handlers.base.anthropic_errors import stream_error
from lmi_handlers.chat.pieces import AnswerPiece, ReasoningText
from lmi_handlers.chat.schema import JsonObject


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
        ended = step.finish_reason is not None
        events = [] if self._started else self._start(output)
        tokens = step.tokens or ([NO_TOKEN] if ended else [])
        for place, token in enumerate(tokens, start=1):
            for piece in self._reader.read(token, last=ended and place == len(tokens)):
                events += self._blocks.add(piece)
        return events + self._end(output) if ended else events

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
        signed = [event("content_block_delta", self._signed())] if self._open == "thinking" else []
        self._open = ""
        return [*signed, event("content_block_stop", {"type": "content_block_stop", "index": self._index})]

    def _signed(self) -> JsonObject:
        delta = {"type": "signature_delta", "signature": self._signature}
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def event(name: str, content: object) -> bytes:
    """Return the content as a server-sent event of that name."""
    return f"event: {name}\ndata: ".encode() + orjson.dumps(content) + b"\n\n"


PING = event("ping", {"type": "ping"})
MESSAGE_STOP = event("message_stop", {"type": "message_stop"})
