"""JSON objects that the answers of OpenAI's chat completions and LMI's chat schema share."""

import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from lmi_core.formatter import ChatAnswer, ChatFormatter
from lmi_core.generation.output import GeneratedSequence, GenerationOutput, Token
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.parsing.reasoning.reader import ReasoningReader
from lmi_core.parsing.search import unmarked
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content, Piece, ToolCallParser
from lmi_handlers.chat.custom_calls import CustomCalls
from lmi_handlers.chat.pieces import AnswerPiece, AnswerReader, ReasoningText, call_id
from lmi_handlers.fields.vllm_schema import finite

JsonObject = dict[str, Any]


class ChatSchemaFormatter(ChatFormatter):
    """The base of chat output formatters: the members that every chat answer has."""

    def __init__(self, answer: ChatAnswer) -> None:
        super().__init__(answer)
        self._readers: list[ReasoningReader] = []  # one for each sequence
        self._created = int(time.time())

    def reads_log_probs(self, parameters: GenerationParameters) -> bool:
        return self.chat.log_probs

    @property
    def call_reason(self) -> str | None:
        """The finish reason of an answer with a tool call; None, for no change, if the client named the function."""
        if self.chat.named_tool:
            return None
        return "function_call" if self.chat.older_calls else "tool_calls"

    def head(self, kind: str) -> JsonObject:
        return {"id": self.chat.response_id, "object": kind, "created": self._created}

    def response(self, kind: str, choices: list[JsonObject]) -> JsonObject:
        return self.head(kind) | {"choices": choices}

    def usage(self, output: GenerationOutput) -> JsonObject:
        counts = usage(output)
        if self.chat.reasoning is not None:
            counts["completion_tokens_details"] = {
                "reasoning_tokens": sum(reader.num_tokens for reader in self._readers)
            }
        return counts

    def new_stream(self) -> "ChatStream":
        """Return the state of one sequence's stream."""
        return ChatStream(self.new_answer_reader(), self.chat.older_calls)

    def new_answer_reader(self) -> AnswerReader:
        """Return a reader of one sequence's reasoning, content and tool calls."""
        parser = self.chat.tool_calls() if self.chat.tool_calls else None
        reader = self.new_reader() if self.chat.reasoning else None
        return AnswerReader(parser, reader, self.chat.include_reasoning)

    def new_reader(self) -> ReasoningReader:
        """Return a reader for one sequence; `usage` counts its reasoning tokens."""
        assert self.chat.reasoning is not None
        self._readers.append(self.chat.reasoning.new_reader())
        return self._readers[-1]

    def log_prob_content(self, tokens: Iterable[Token]) -> list[JsonObject]:
        return list(self.log_prob_items(tokens))

    def log_prob_items(self, tokens: Iterable[Token]) -> Iterator[JsonObject]:
        """Yield what `log_prob_content` lists."""
        for token in tokens:
            yield self._token(token) | {"top_logprobs": [self._token(top) for top in token.top_tokens or ()]}

    def _token(self, token: Token) -> JsonObject:
        data = self.chat.tokenizer.token_bytes(token.id)
        text = token_id_text(token.id) if self.chat.token_ids_as_text else token_text(data)
        return {"token": text, "logprob": finite(token.log_prob), "bytes": list(data)}


class WholeChatFormatter(ChatSchemaFormatter):
    def format(self, output: GenerationOutput) -> bytes:
        return self.whole(output) if output.finished else b""

    @abstractmethod
    def whole(self, output: GenerationOutput) -> bytes:
        """Return the complete answer of a finished request."""

    def message(self, sequence: GeneratedSequence) -> JsonObject:
        message = self._message(sequence)
        return message | {"content": self.chat.echo + (message["content"] or "")} if self.chat.echo else message

    def _message(self, sequence: GeneratedSequence) -> JsonObject:
        if self.chat.reasoning is None:
            return {"role": "assistant", **self._content(sequence)}
        reader = self.new_reader()
        parts = [*map(reader.read, sequence.tokens), reader.finish()]
        reasoning = "".join([part.reasoning for part in parts])
        content = "".join([part.content for part in parts])
        message = {"role": "assistant", **self._content(sequence, content)}
        if reasoning:
            message["content"] = message["content"] or None
        return message | (reasoning_members(reasoning) if self.chat.include_reasoning and reasoning else {})

    def _content(self, sequence: GeneratedSequence, text: str | None = None) -> JsonObject:
        """Return the members for content and calls in `text`, all text by default.

        A truncated call is omitted, or is content if alone.
        """
        if self.chat.tool_calls is None:
            return {"content": sequence.text if text is None else text}
        parser = self.chat.tool_calls()
        if text is None:
            text = "".join([parser.token_text(token.text) for token in sequence.tokens])
        pieces = parser.push(text) + parser.finish()
        content = "".join([piece.text for piece in pieces if isinstance(piece, Content)])
        calls = [_whole_call(piece, pieces) for piece in pieces if isinstance(piece, CallBegun)]
        if not calls:
            return {"content": content}
        ended = isinstance(pieces[-1], Content)  # by the model, even if the arguments are no JSON
        if sequence.finish_reason == "length" and not ended and _is_cut(calls[-1], parser):
            calls.pop()
            if not calls:
                return {"content": unmarked(text)}
        written = {"function_call": calls[0]["function"]} if self.chat.older_calls else {"tool_calls": calls}
        return {"content": content or None, **written}


class ChatStream:
    """The state of one streamed sequence, which turns its tokens into deltas of the message."""

    def __init__(self, reader: AnswerReader, older_calls: bool = False) -> None:
        self.called = False  # whether the sequence has a tool call so far
        self._older_calls = older_calls
        self._plain = False  # whether the open call is one of a custom tool
        self._reader = reader
        self.all_content = reader.all_content  # whether the text of each token is content

    def deltas(self, token: Token, last: bool) -> list[JsonObject]:
        if self.all_content:
            return [{"content": token.text}] if token.text else []
        return [self._delta(piece) for piece in self._reader.read(token, last)]

    def _delta(self, piece: AnswerPiece) -> JsonObject:
        match piece:
            case ReasoningText(text):
                return reasoning_members(text)
            case Content(text):
                return {"content": text}
            case CallBegun(index):
                self.called = True
                self._plain = piece.plain
                call = _call(piece, "")
                return {"function_call": call["function"]} if self._older_calls else _call_delta(index, call)
            case CallArguments(index, text):
                part = {"input": text} if self._plain else {"arguments": text}
                if self._older_calls:
                    return {"function_call": part}
                return _call_delta(index, {"custom" if self._plain else "function": part})


def _is_cut(call: JsonObject, parser: ToolCallParser) -> bool:
    """Return whether the last call of a sequence is truncated."""
    if "custom" in call:
        return isinstance(parser, CustomCalls) and parser.cut
    try:
        orjson.loads(call["function"]["arguments"])
    except orjson.JSONDecodeError:
        return True
    return False


def _call_delta(index: int, call: JsonObject) -> JsonObject:
    return {"tool_calls": [{"index": index, **call}]}


def answers(output: GenerationOutput) -> list[GeneratedSequence]:
    """Return the best of the generated sequences, as many as the client asked for."""
    return output.best_sequences(output.parameters.num_answers)


def reasoning_members(text: str) -> JsonObject:
    """Return the members for reasoning: `reasoning_content` (LMI, DeepSeek, SGLang) and `reasoning` (newer vLLM)."""
    return {"reasoning_content": text, "reasoning": text}


def usage(output: GenerationOutput) -> JsonObject:
    """Return the token counts, including generated sequences that are not in the answer, and tokens from the prefix
    cache if the engine reports them.
    """
    counts = output.usage
    members: JsonObject = {
        "prompt_tokens": counts.prompt_tokens,
        "completion_tokens": counts.generated_tokens,
        "total_tokens": counts.total_tokens,
    }
    cached = output.cached_tokens
    return members if cached is None else members | {"prompt_tokens_details": {"cached_tokens": cached}}


def token_text(data: bytes) -> str:
    """Return the token's text; for part of a UTF-8 character, its bytes as `bytes:\\xe2\\x82`."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join([f"\\x{byte:02x}" for byte in data])


def token_id_text(token_id: int) -> str:
    """Return the token id in vLLM's notation for log probabilities, `token_id:42`."""
    return f"token_id:{token_id}"


def _whole_call(begun: CallBegun, pieces: Sequence[Piece]) -> JsonObject:
    parts = [piece.text for piece in pieces if isinstance(piece, CallArguments) and piece.index == begun.index]
    return _call(begun, "".join(parts))


def _call(begun: CallBegun, arguments: str) -> JsonObject:
    if begun.plain:
        return {"id": call_id(begun), "type": "custom", "custom": {"name": begun.name, "input": arguments}}
    function = {"name": begun.name, "arguments": arguments}
    return {"id": call_id(begun), "type": "function", "function": function}
