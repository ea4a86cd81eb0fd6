"""Output formatters of TGI's routes."""

from collections.abc import Mapping
from typing import Any, ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import NO_TOKEN, GeneratedSequence, GenerationOutput, Token
from lmi_core.generation.parameters import GenerationParameters
from lmi_schemas.tgi_errors import error_object

JsonObject = dict[str, Any]


def token_object(token: Token) -> JsonObject:
    return {"id": token.id, "text": token.text, "logprob": token.log_prob, "special": token.special}


def prompt_token_object(token: Token) -> JsonObject:
    return {"id": token.id, "text": token.text, "logprob": token.log_prob}


def answer_seed(parameters: GenerationParameters) -> int | None:
    """Return the seed of the answer; None for greedy decoding, which needs none."""
    return parameters.seed if parameters.do_sample and parameters.temperature > 0 else None


class TgiObjectFormatter(OutputFormatter):
    """The object that `/generate` answers with."""

    name: ClassVar[str] = "tgi_object"
    content_type = "application/json"
    text_path: tuple[str, ...] = ("generated_text",)

    def format(self, output: GenerationOutput) -> bytes:
        return orjson.dumps(self.whole(output)) if output.finished else b""

    def error(self, error: LmiError) -> bytes:
        return orjson.dumps(error_object(error))

    def whole(self, output: GenerationOutput) -> object:
        best = output.best_sequence
        answer: JsonObject = {"generated_text": output.full_text(best)}
        if output.request.parameters.details:
            answer["details"] = _details(output, best)
            others = [sequence for sequence in output.sequences if sequence is not best]
            if others:
                answer["details"]["best_of_sequences"] = [
                    {"generated_text": output.full_text(other), **_details(output, other)} for other in others
                ]
        return answer


class TgiArrayFormatter(TgiObjectFormatter):
    """The answer of `/`: an array with the object of `/generate`."""

    name: ClassVar[str] = "tgi_array"

    def whole(self, output: GenerationOutput) -> object:
        return [super().whole(output)]


class TgiStreamFormatter(OutputFormatter):
    """Server-sent events of `/generate_stream`, and of `/` with `stream`, one for each token."""

    name: ClassVar[str] = "tgi_stream"
    one_sequence = True
    content_type = "text/event-stream"
    text_path: tuple[str, ...] = ("token", "text")
    full_text: ClassVar[str | None] = "generated_text"

    def __init__(self) -> None:
        self._index = 0

    def format(self, output: GenerationOutput) -> list[bytes]:
        finished = output.step.finish_reason is not None
        tokens = output.step.tokens or ([NO_TOKEN] if finished else [])
        chunks = [self._chunk(output, token) for token in tokens]
        if finished:
            chunks[-1]["generated_text"] = output.full_text(output.sequence)
            chunks[-1]["details"] = _stream_details(output) if output.request.parameters.details else None
        return [_event(chunk) for chunk in chunks]

    def error(self, error: LmiError) -> bytes:
        return _event(error_object(error))

    def _chunk(self, output: GenerationOutput, token: Token) -> JsonObject:
        self._index += 1
        chunk: JsonObject = {"index": self._index, "token": token_object(token)}
        if token.top_tokens is not None:
            chunk["top_tokens"] = [token_object(top) for top in token.top_tokens]
        return chunk | {"generated_text": None, "details": None}


def _event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _details(output: GenerationOutput, sequence: GeneratedSequence) -> JsonObject:
    details: JsonObject = {
        "finish_reason": sequence.finish_reason,
        "generated_tokens": len(sequence.tokens),
        "seed": answer_seed(output.request.parameters),
        "prefill": [prompt_token_object(token) for token in output.prefill[0] or ()],
        "tokens": [token_object(token) for token in sequence.tokens],
    }
    if any(token.top_tokens is not None for token in sequence.tokens):
        details["top_tokens"] = [[token_object(top) for top in token.top_tokens or ()] for token in sequence.tokens]
    return details


def _stream_details(output: GenerationOutput) -> JsonObject:
    return {
        "finish_reason": output.sequence.finish_reason,
        "generated_tokens": len(output.sequence.tokens),
        "seed": answer_seed(output.request.parameters),
        "input_length": len(output.request.prompt_ids),
    }
