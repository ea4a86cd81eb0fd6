"""`@output_formatter`, the types that such a function receives, and LMI's own formatters."""

import json
from typing import Any

from lmi_core.decorators import djl_output_formatter as output_formatter
from lmi_core.script.formatters.request_io import (
    RequestInput,
    RequestOutput,
    Sequence,
    TextGenerationOutput,
    TextInput,
    Token,
)

__all__ = [
    "RequestInput",
    "RequestOutput",
    "Sequence",
    "TextGenerationOutput",
    "TextInput",
    "Token",
    "_json_output_formatter",
    "_jsonlines_output_formatter",
    "get_details_dict",
    "get_generated_text",
    "output_formatter",
]


def get_generated_text(sequence: Sequence, request_output: TextGenerationOutput) -> str:
    """Return a sequence's text so far, after the prompt if `return_full_text` is set."""
    request: Any = request_output.input
    head = request.input_text if request.parameters.get("return_full_text") else ""
    return head + "".join([token.text for token in sequence.tokens])


def get_details_dict(request_output: TextGenerationOutput, include_tokens: bool = True) -> dict[str, Any]:
    """Return the `details` of an answer, empty unless they are requested or the request failed."""
    request: Any = request_output.input
    best = request_output.sequences[request_output.best_sequence_index]
    if not request.parameters.get("details", request.tgi_compat):
        return {"finish_reason": best.finish_reason} if best.finish_reason == "error" else {}
    best_index = request_output.best_sequence_index
    return _sequence_details(request_output, best_index, include_tokens, inputs=request.input_text)


def _sequence_details(
    request_output: TextGenerationOutput, sequence_index: int, include_tokens: bool = True, **own: str
) -> dict[str, Any]:
    sequence = request_output.sequences[sequence_index]
    parameters = request_output.input.parameters
    details: dict[str, Any] = {"finish_reason": sequence.finish_reason, "generated_tokens": len(sequence.tokens), **own}
    if include_tokens:
        details["tokens"] = request_output.get_tokens_as_dict(sequence_index)
    if parameters.get("decoder_input_details"):
        details["prefill"] = request_output.get_prompt_tokens_as_dict()
    if (parameters.get("top_n_tokens") or 0) > 0:
        details["top_tokens"] = request_output.get_top_tokens_as_dict(sequence_index)
    return details


def _json_output_formatter(request_output: TextGenerationOutput) -> str:
    """Return the whole answer for the last token, and "" for the others."""
    request: Any = request_output.input
    best_index = request_output.best_sequence_index
    best = request_output.sequences[best_index]
    best.get_next_token()
    if not request_output.finished or best.has_next_token():
        return ""
    answer: dict[str, Any] = {"generated_text": get_generated_text(best, request_output)}
    details = get_details_dict(request_output)
    if others := request_output.other_sequences_indices:  # then there are details even if none are requested
        details = _sequence_details(request_output, best_index, inputs=request.input_text)
        texts = [get_generated_text(request_output.sequences[index], request_output) for index in others]
        details["best_of_sequences"] = [
            _sequence_details(request_output, index, generated_text=text)
            for index, text in zip(others, texts, strict=True)
        ]
    if details:
        answer["details"] = details
    return json.dumps([answer] if request.tgi_compat else answer, ensure_ascii=False)


def _jsonlines_output_formatter(request_output: TextGenerationOutput) -> str:
    """Return the line of the next token; the last one has the whole text and the details."""
    best = request_output.sequences[request_output.best_sequence_index]
    token, *_, is_last = best.get_next_token()
    if token is None:
        return ""
    line: dict[str, Any] = {"token": token.as_tgi_dict() if request_output.input.tgi_compat else token.as_dict()}
    if is_last:
        line["generated_text"] = get_generated_text(best, request_output)
        if details := get_details_dict(request_output, include_tokens=False):
            line["details"] = details
    return json.dumps(line, ensure_ascii=False) + "\n"
