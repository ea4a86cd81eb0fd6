"""Conversion of a GenerationOutput to the TextGenerationOutput of LMI's formatters."""

from collections.abc import Iterator
from typing import Any

from lmi_core.errors import LmiError
from lmi_core.generation import output as generation
from lmi_core.generation.output import GenerationOutput
from lmi_core.script.formatters.request_io import CallContext, Sequence, TextGenerationOutput, TextInput, Token


def new_request_output(
    output: GenerationOutput, context: CallContext, stream: bool, numbers_tokens: bool = False
) -> TextGenerationOutput:
    """Return an output for the prompt of the latest step; its `input` is the input formatter's object, completed."""
    request = output.request
    found = context.request_input if context.request_input is not None else TextInput()
    found.request_id = found.request_id if found.request_id is not None else request.request_id
    found.tgi_compat = context.tgi_compat
    given = dict(request.ignored) | request.parameters.model_dump(exclude_unset=True)
    found.parameters = given | {"stream": stream} | found.parameters
    found.server_parameters = found.server_parameters or dict(found.parameters)
    if isinstance(found, TextInput):
        found.input_text = request.prompt
        found.input_ids = request.prompt_ids
        found.adapters = context.adapter
        found.tokenizer = getattr(context.tokenizer, "pretrained", context.tokenizer)
    count = len(output.sequences_of(output.prompt_index))
    sequences = {place: Sequence(_numbers_tokens=numbers_tokens) for place in range(count)}
    return TextGenerationOutput(request.request_id, found, sequences=sequences)


def add_tokens(request_output: TextGenerationOutput, output: GenerationOutput) -> Iterator[None]:
    """Add the latest step's tokens; yield whenever the formatter must be called.

    The best of several sequences is not known until the end; the formatter is then called for its tokens.
    """
    generated = output.sequences_of(output.prompt_index)
    request_id = request_output.request_id
    if output.step.prefill is not None:
        request_output.prompt_tokens_details = [_token(token, request_id) for token in output.step.prefill]
    for token, last in _new_tokens(output, request_id):
        sequence = request_output.sequences[output.step.sequence_index]
        sequence.set_next_token(token[0], last)
        sequence.set_next_top_tokens(token[1])
        sequence.cumulative_log_prob = generated[output.step.sequence_index].cumulative_log_prob
        if last:
            sequence.finish_reason = output.step.finish_reason
            request_output.finished = all(each.finish_reason is not None for each in generated)
        if len(generated) == 1:
            yield
    if len(generated) > 1 and request_output.finished:
        ranked = sorted(range(len(generated)), key=lambda place: -generated[place].cumulative_log_prob)
        request_output.best_sequence_index, *request_output.other_sequences_indices = ranked
        best = request_output.sequences[request_output.best_sequence_index]
        before = best.unread
        yield
        while best.unread not in (0, before):  # the formatter reads tokens, and there are more
            before = best.unread
            yield


def error_token(request_output: TextGenerationOutput, error: LmiError) -> None:
    """Add the token that ends a request that failed."""
    token = Token(-1, "", -1, True, error.message)
    token.request_id = request_output.request_id
    request_output.set_next_token(token, request_output.best_sequence_index, True, "error")
    request_output.finished = True


def legacy_details(request_output: TextGenerationOutput, last: bool) -> tuple[dict[str, Any], str]:
    """Return arguments for formatters up to LMI v0.27: `details`, if requested, and the whole text at the end."""
    parameters = request_output.input.parameters
    sequence = request_output.sequences[request_output.best_sequence_index]
    prompt = getattr(request_output.input, "input_text", "")
    text = prompt if parameters.get("return_full_text") else ""
    if last:
        text += "".join(token.text for token in sequence.tokens)
    if parameters.get("details"):
        return {
            "finish_reason": sequence.finish_reason,
            "tokens": request_output.get_tokens_as_dict(request_output.best_sequence_index),
            "generated_tokens": len(sequence.tokens),
            "inputs": prompt,
            "parameters": parameters,
            "prompt_tokens": len(getattr(request_output.input, "input_ids", [])),
        }, text
    return ({"finish_reason": "error"} if sequence.finish_reason == "error" else {}), text


def _new_tokens(
    output: GenerationOutput, request_id: int | str | None
) -> Iterator[tuple[tuple[Token, list[Token]], bool]]:
    """Yield the step's tokens, each with its top tokens and whether it is the last; there is always a last one."""
    tokens = output.step.tokens
    if not tokens and output.is_last:
        tokens = [generation.Token(-1, "", None, True)]
    for place, token in enumerate(tokens, start=1):
        top_tokens = [_token(each, request_id) for each in token.top_tokens or ()]
        yield (_token(token, request_id), top_tokens), output.is_last and place == len(tokens)


def _token(token: generation.Token, request_id: int | str | None) -> Token:
    found = Token(token.id, token.text, token.log_prob, token.special or None)
    found.request_id = request_id
    return found
