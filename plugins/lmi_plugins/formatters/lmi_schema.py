"""The objects of LMI's rolling-batch response schema (LMI handlers Inference API Schema, v0.28)."""

from typing import Any

from lmi_core.errors import LmiError
from lmi_core.generation import GeneratedSequence, GenerationOutput, Token

JsonObject = dict[str, Any]


def token_object(token: Token) -> JsonObject:
    """With the likeliest tokens in its place, where they were asked for."""
    written: JsonObject = {"id": token.id, "text": token.text, "log_prob": token.log_prob}
    if token.top_tokens is not None:
        written["top_tokens"] = token_objects(token.top_tokens)
    return written


def token_objects(tokens: list[Token]) -> list[JsonObject]:
    return [token_object(token) for token in tokens]


def stream_details(output: GenerationOutput) -> JsonObject:
    """The details of a stream: its tokens were already sent."""
    sequence = output.best_sequence
    details: JsonObject = {
        "finish_reason": sequence.finish_reason,
        "generated_tokens": len(sequence.tokens),
        "inputs": output.request.prompt,
    }
    prefill = output.prefill[output.prompt_index]
    if prefill is not None:
        details["prefill"] = token_objects(prefill)
    return details


def details(output: GenerationOutput) -> JsonObject:
    """The details of a whole answer."""
    best = output.best_sequence
    whole = stream_details(output) | {"tokens": token_objects(best.tokens)}
    asked_for = output.parameters.num_answers
    count = asked_for if asked_for > 1 else len(output.sequences)  # of one answer, all that it was chosen from
    others = [sequence for sequence in output.best_sequences(count) if sequence is not best]
    if others:
        whole["best_of_sequences"] = [_best_of_sequence(output, sequence) for sequence in others]
    return whole


def _best_of_sequence(output: GenerationOutput, sequence: GeneratedSequence) -> JsonObject:
    return {
        "finish_reason": sequence.finish_reason,
        "generated_tokens": len(sequence.tokens),
        "tokens": token_objects(sequence.tokens),
        "generated_text": output.full_text(sequence),
    }


def error_object(error: LmiError) -> JsonObject:
    """The specified answer to a failed request; `error` gives the reason, for which it has no key."""
    return {
        "generated_text": "",
        "details": {"finish_reason": "error", "generated_tokens": None, "inputs": None, "tokens": None},
        "error": error.message,
    }


def error_chunk(error: LmiError) -> JsonObject:
    """The specified last line of a failed stream; `error` gives the reason."""
    return {
        "token": {"id": -1, "text": "", "log_prob": -1, "special_token": True},
        "generated_text": "",
        "details": {"finish_reason": "error", "generated_tokens": None, "inputs": None},
        "error": error.message,
    }
