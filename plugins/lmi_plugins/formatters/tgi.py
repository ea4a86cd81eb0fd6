"""LMI's formats for `option.tgi_compat`, with the keys of Text Generation Inference in addition to LMI's own."""

from typing import ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import AnswerSchema, Variant
from lmi_core.generation.output import GeneratedSequence, GenerationOutput, Token
from lmi_core.payloads.spaced_json import encode_spaced
from lmi_plugins.formatters import lmi_schema
from lmi_plugins.formatters.json import JsonFormatter
from lmi_plugins.formatters.jsonlines import JsonLinesFormatter
from lmi_schemas import tgi_errors


def token_object(token: Token) -> lmi_schema.JsonObject:
    return {
        "id": token.id,
        "text": token.text,
        "log_prob": token.log_prob,
        "logprob": token.log_prob,
        "special": token.special,
    }


def top_tokens(token: Token) -> list[lmi_schema.JsonObject]:
    return [token_object(top) for top in token.top_tokens or ()]


def prefill_object(token: Token) -> lmi_schema.JsonObject:
    """Return a prompt token's object, with top tokens if requested, which TGI's schema lacks."""
    written = token_object(token)
    return written if token.top_tokens is None else written | {"top_tokens": top_tokens(token)}


def details(output: GenerationOutput, of_request: lmi_schema.JsonObject) -> lmi_schema.JsonObject:
    """Return the details `of_request`, streamed or whole, with additional keys for TGI's clients."""
    prefill = output.prefill[output.prompt_index] or []
    return of_request | {
        "seed": output.request.parameters.seed,
        "prefill": [prefill_object(token) for token in prefill],
    }


def _token_details(output: GenerationOutput, sequence: GeneratedSequence) -> lmi_schema.JsonObject:
    tokens: lmi_schema.JsonObject = {"tokens": [token_object(token) for token in sequence.tokens]}
    if output.parameters.num_top_tokens:
        tokens["top_tokens"] = [top_tokens(token) for token in sequence.tokens]
    return tokens


class TgiJsonFormatter(JsonFormatter):
    """A formatter that writes an array of one object or, for a failed request, an error object."""

    name: ClassVar[str] = "tgi_json"
    variant = Variant("json", AnswerSchema.TGI_COMPAT)

    def format(self, output: GenerationOutput) -> bytes:
        return b"[" + super().format(output) + b"]" if output.finished else b""

    def error(self, error: LmiError) -> bytes:
        return encode_spaced(lmi_schema.error_object(error) | tgi_errors.error_object(error))

    def whole(self, output: GenerationOutput) -> lmi_schema.JsonObject:
        answer: lmi_schema.JsonObject = {"generated_text": output.full_text(output.best_sequence)}
        if lmi_schema.has_details(output):
            shown = details(output, lmi_schema.stream_details(output)) | _token_details(output, output.best_sequence)
            others = lmi_schema.other_sequences(output)
            if others:
                shown["best_of_sequences"] = [
                    details(output, lmi_schema.sequence_end(output, other)) | _token_details(output, other)
                    for other in others
                ]
            answer["details"] = orjson.Fragment(encode_spaced(shown))
        return answer


class TgiJsonLinesFormatter(JsonLinesFormatter):
    name: ClassVar[str] = "tgi_jsonlines"
    variant = Variant("jsonlines", AnswerSchema.TGI_COMPAT)

    def __init__(self) -> None:
        self._index = 0

    def error(self, error: LmiError) -> bytes:
        return self.frame(lmi_schema.error_chunk(error) | tgi_errors.error_object(error))

    def chunk(self, output: GenerationOutput, token: Token) -> lmi_schema.JsonObject:
        self._index += 1
        chunk: lmi_schema.JsonObject = {"index": self._index, "token": token_object(token)}
        if token.top_tokens is not None:
            chunk["top_tokens"] = top_tokens(token)
        return chunk | {"generated_text": None, "details": None}

    def last_chunk(self, output: GenerationOutput, token: Token) -> lmi_schema.JsonObject:
        stream_details = lmi_schema.stream_details(output) | {"input_length": len(output.request.prompt_ids)}
        return self.chunk(output, token) | {
            "generated_text": output.full_text(output.sequence),
            "details": details(output, stream_details),
        }


class TgiSseFormatter(TgiJsonLinesFormatter):
    name: ClassVar[str] = "tgi_sse"
    variant = Variant("sse", AnswerSchema.TGI_COMPAT)
    content_type = "text/event-stream"

    def frame(self, chunk: lmi_schema.JsonObject) -> bytes:
        return b"data: " + orjson.dumps(chunk) + b"\n\n"
