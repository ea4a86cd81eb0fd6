"""LMI's schema of asynchronous mode, the default of its newest containers: vLLM's completions with TGI's keys."""

from typing import ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import AnswerSchema, Variant
from lmi_core.generation.output import FinishReason, GeneratedSequence, GenerationOutput, Token
from lmi_core.payloads.json_list import json_list
from lmi_core.payloads.spaced_json import encode_spaced
from lmi_plugins.formatters.json import JsonFormatter
from lmi_plugins.formatters.jsonlines import JsonLinesFormatter
from lmi_plugins.formatters.lmi_schema import JsonObject
from lmi_schemas.vllm_errors import stream_error

MIN_LOG_PROB = -9999.0  # vLLM's value, because JSON has no negative infinity


def token_object(token: Token) -> JsonObject:
    log_prob = token.log_prob if token.log_prob is None else max(token.log_prob, MIN_LOG_PROB)
    return {"id": token.id, "text": token.text, "logprob": log_prob}


def finish_reason(reason: FinishReason | None) -> str | None:
    """Return vLLM's finish reason: `stop` for any end that the model or a stop sequence brought about."""
    return "stop" if reason in ("eos_token", "stop_sequence") else reason


def details(output: GenerationOutput, sequence: GeneratedSequence) -> JsonObject:
    """Return the details of whole and streamed answers."""
    return {
        "finish_reason": finish_reason(sequence.finish_reason),
        "generated_tokens": len(sequence.tokens),
        "seed": output.parameters.seed,
    }


class AsyncJsonFormatter(JsonFormatter):
    """A formatter that writes only the first of the requested sequences."""

    name: ClassVar[str] = "async_json"
    variant = Variant("json", AnswerSchema.ASYNC)

    def whole(self, output: GenerationOutput) -> JsonObject:
        sequence = output.best_sequences(output.parameters.num_answers)[0]
        answer: JsonObject = {"generated_text": output.full_text(sequence)}
        if output.parameters.details:
            prefill = [token for token in output.prefill[0] or () if token.log_prob is not None]
            lists = {"prefill": prefill, "tokens": sequence.tokens}
            written = {name: json_list(map(token_object, tokens)) for name, tokens in lists.items()}
            answer["details"] = orjson.Fragment(encode_spaced(details(output, sequence) | written))
        return answer


class AsyncJsonLinesFormatter(JsonLinesFormatter):
    """A formatter that writes a line for each token, with the index of its sequence."""

    name: ClassVar[str] = "async_jsonlines"
    variant = Variant("jsonlines", AnswerSchema.ASYNC)
    one_sequence = False

    def error(self, error: LmiError) -> bytes:
        return self.frame(dict(stream_error(error)))

    def chunk(self, output: GenerationOutput, token: Token) -> JsonObject:
        return {
            "index": output.step.sequence_index,
            "token": token_object(token),
            "generated_text": None,
            "details": None,
        }

    def last_chunk(self, output: GenerationOutput, token: Token) -> JsonObject:
        last = self.chunk(output, token) | {"generated_text": output.full_text(output.sequence)}
        if output.parameters.details:
            last["details"] = details(output, output.sequence) | {"input_length": len(output.request.prompt_ids)}
        return last
