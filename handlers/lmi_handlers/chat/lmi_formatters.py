"""The output formatters of LMI's chat schema (v0.29): `lmi_chat`, `lmi_chat_jsonlines` and `lmi_chat_sse`."""

from collections.abc import Callable, Iterable
from typing import ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import AnswerSchema, ChatAnswer, OutputFormatter, Variant
from lmi_core.generation.output import NO_TOKEN, GeneratedSequence, GenerationOutput, Token
from lmi_core.hookspecs import hookimpl
from lmi_core.payloads.spaced_json import encode_spaced
from lmi_handlers.chat.schema import ChatSchemaFormatter, ChatStream, JsonObject, WholeChatFormatter, answers


def visible(tokens: Iterable[Token]) -> list[Token]:
    """Return the tokens that are part of the text; LMI's schema omits other special tokens."""
    return [token for token in tokens if token.text or not token.special]


class LmiChatFormatter(WholeChatFormatter):
    name: ClassVar[str] = "lmi_chat"
    variant = Variant("json", AnswerSchema.CHAT)
    content_type = "application/json"

    def whole(self, output: GenerationOutput) -> bytes:
        choices = [self._choice(index, sequence) for index, sequence in enumerate(answers(output))]
        return encode_spaced(self.response("chat.completion", choices) | {"usage": self.usage(output)})

    def error(self, error: LmiError) -> bytes:
        message = {"role": "assistant", "content": ""}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "error"}
        return encode_spaced(self.response("chat.completion", [choice]) | {"error": error.message})

    def _choice(self, index: int, sequence: GeneratedSequence) -> JsonObject:
        return {
            "index": index,
            "message": self.message(sequence),
            "logprobs": {"content": self.log_prob_content(visible(sequence.tokens))} if self.chat.log_probs else None,
            "finish_reason": sequence.finish_reason,
        }


class LmiChatJsonLinesFormatter(ChatSchemaFormatter):
    """JSON lines, one for each token, with the index of its choice."""

    name: ClassVar[str] = "lmi_chat_jsonlines"
    variant = Variant("jsonlines", AnswerSchema.CHAT)
    content_type = "application/jsonlines"

    def __init__(self, answer: ChatAnswer) -> None:
        super().__init__(answer)
        self._streams: dict[int, ChatStream] = {}

    def format(self, output: GenerationOutput) -> list[bytes]:
        step = output.step
        tokens = step.tokens or ([NO_TOKEN] if step.finish_reason else [])
        lines: list[bytes] = []
        for place, token in enumerate(tokens, start=1):
            reason = step.finish_reason if place == len(tokens) else None
            lines += self._lines(step.sequence_index, token, reason)
        if output.finished and self.chat.include_usage:
            lines.append(self.frame(self._response([]) | {"usage": self.usage(output)}))
        return lines

    def error(self, error: LmiError) -> bytes:
        choice = {"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": "error"}
        return self.frame(self._response([choice]) | {"error": error.message})

    def frame(self, chunk: JsonObject) -> bytes:
        """Return the encoded chunk with its terminator."""
        return orjson.dumps(chunk, option=orjson.OPT_APPEND_NEWLINE)

    def _lines(self, index: int, token: Token, reason: str | None) -> list[bytes]:
        begun = index in self._streams
        if not begun:
            self._streams[index] = self.new_stream()
        deltas = self._streams[index].deltas(token, reason is not None) or [{"content": ""}]
        if not begun:
            if self.chat.echo:
                deltas.insert(0, {"content": self.chat.echo})
            deltas[0]["role"] = "assistant"
        *earlier, last = deltas
        lines = [self._line(index, delta, None, None) for delta in earlier]
        return [*lines, self._line(index, last, token, reason)]

    def _line(self, index: int, delta: JsonObject, token: Token | None, reason: str | None) -> bytes:
        content = self.log_prob_content(visible([token])) if token is not None and self.chat.log_probs else []
        log_probs = [{"content": content}] if content else None  # LMI's lines wrap the object in a list
        choice = {"index": index, "delta": delta, "logprobs": log_probs, "finish_reason": reason}
        return self.frame(self._response([choice]))

    def _response(self, choices: list[JsonObject]) -> JsonObject:
        return self.response("chat.completion.chunk", choices)


class LmiChatSseFormatter(LmiChatJsonLinesFormatter):
    """Server-sent events, one for each token, with the index of its choice."""

    name: ClassVar[str] = "lmi_chat_sse"
    variant = Variant("sse", AnswerSchema.CHAT)
    content_type = "text/event-stream"

    def frame(self, chunk: JsonObject) -> bytes:
        return b"data: " + orjson.dumps(chunk) + b"\n\n"


@hookimpl
def lmi_register_formatters(register: Callable[[type[OutputFormatter]], None]) -> None:
    register(LmiChatFormatter)
    register(LmiChatJsonLinesFormatter)
    register(LmiChatSseFormatter)
