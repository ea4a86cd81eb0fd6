"""The objects of LMI's rolling-batch response schema (LMI handlers Inference API Schema, v0.28)."""

from typing import Any

from lmi_core.errors import LmiError
from lmi_core.generation.output import GeneratedSequence, GenerationOutput, Token
from lmi_core.payloads.json_list import json_list

JsonObject = dict[str, Any]


def token_object(token: Token) -> JsonObject:
    """Return a token's object, with the top tokens at its position if requested."""
    written: JsonObject = {"id": token.id, "text": token.text, "log_prob": token.log_prob}
    if token.top_tokens is not None:
        written["top_tokens"] = token_objects(token.top_tokens)
    return written


def token_objects(tokens: list[Token]) -> list[JsonObject]:
    return [token_object(token) for token in tokens]


def stream_details(output: GenerationOutput) -> JsonObject:
    """Return the details of a stream, without the tokens, which were already sent."""
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


def has_details(output: GenerationOutput) -> bool:
    """Return whether a whole answer has details: if the client asks for them, or for several sequences."""
    return output.parameters.details or output.parameters.num_sequences > 1


def details(output: GenerationOutput) -> JsonObject:
    """Return the details of a whole answer, with its tokens and the other sequences."""
    whole = stream_details(output) | _token_details(output, output.best_sequence)
    others = other_sequences(output)
    if others:
        whole["best_of_sequences"] = [_best_of_sequence(output, sequence) for sequence in others]
    return whole


def other_sequences(output: GenerationOutput) -> list[GeneratedSequence]:
    """Return the sequences of `best_of_sequences`, the most likely first."""
    asked_for = output.parameters.num_answers
    count = asked_for if asked_for > 1 else len(output.sequences)  # a single answer contains all candidates
    return [sequence for sequence in output.best_sequences(count) if sequence is not output.best_sequence]


def sequence_end(output: GenerationOutput, sequence: GeneratedSequence) -> JsonObject:
    """Return the members of another sequence's object that do not depend on the form of tokens."""
    return {
        "finish_reason": sequence.finish_reason,
        "generated_tokens": len(sequence.tokens),
        "generated_text": output.full_text(sequence),
    }


def _best_of_sequence(output: GenerationOutput, sequence: GeneratedSequence) -> JsonObject:
    other = sequence_end(output, sequence) | _token_details(output, sequence)
    prefill = output.prefill[output.prompt_index]
    return other if prefill is None else other | {"prefill": token_objects(prefill)}


def _token_details(output: GenerationOutput, sequence: GeneratedSequence) -> JsonObject:
    tokens: JsonObject = {"tokens": json_list(map(token_object, sequence.tokens))}
    if getattr(output.parameters, "top_n_tokens", None):  # a backend's own parameters may not include it
        tokens["top_tokens"] = [token_objects(token.top_tokens or []) for token in sequence.tokens]
    return tokens


def error_object(error: LmiError) -> JsonObject:
    """Return the specified answer to a failed request, with the reason in the additional key `error`."""
    return {
        "generated_text": "",
        "details": {"finish_reason": "error", "generated_tokens": None, "inputs": None, "tokens": None},
        "error": error.message,
    }


def error_chunk(error: LmiError) -> JsonObject:
    """Return the specified last line of a failed stream, with the reason in the additional key `error`."""
    return {
        "token": {"id": -1, "text": "", "log_prob": -1, "special_token": True},
        "generated_text": "",
        "details": {"finish_reason": "error", "generated_tokens": None, "inputs": None},
        "error": error.message,
    }
