"""Sentences about what a backend's code does otherwise than its interface asks, for the author of the backend."""

from collections.abc import Iterator
from typing import Any, get_args

from lmi_core.generation.output import FinishReason, GenerationStep, Token
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.payloads.payload import shown

FINISH_REASONS = frozenset(get_args(FinishReason))
MIN_LENGTH = 2  # a token of the prompt, and one that is generated
NUMBER = (int, float)


def given(value: object) -> str:
    """Return a value and its type, as messages show what code of an author gave."""
    return "None" if value is None else f"{type(value).__name__} {shown(value)}"


def start_faults(backend: Any) -> Iterator[str]:
    """Yield what is wrong with the attributes that a backend must have once it has started."""
    tokenizer = getattr(backend, "tokenizer", None)
    if not isinstance(tokenizer, Tokenizer):
        yield (
            f"`start` must set `self.tokenizer` to a Tokenizer, such as lmi.WordTokenizer(). Given: {given(tokenizer)}"
        )
    length = getattr(backend, "max_length", None)
    if not _is_count(length, MIN_LENGTH):
        yield (
            "`start` must set `self.max_length` to the context length in tokens, an int of at least "
            f"{MIN_LENGTH}. Given: {given(length)}"
        )
    for name in ("max_input_length", "max_output_length"):
        limit = getattr(backend, name)
        if limit is not None and not _is_count(limit, 1):
            yield f"`self.{name}` must be a number of tokens, an int of at least 1, or None. Given: {given(limit)}"


def stream_fault(stream: object) -> str | None:
    """Return what is wrong with what `generate` returned, or None."""
    if hasattr(stream, "__anext__") and hasattr(stream, "aclose"):
        return None
    if hasattr(stream, "close"):  # a coroutine would warn that nobody awaited it
        stream.close()
    return f"`generate` must be an asynchronous generator: `async def` with `yield`. Given: {given(stream)}"


def step_fault(step: object) -> str | None:
    """Return what is wrong with what `generate` yielded, or None."""
    if not isinstance(step, GenerationStep):
        return f"`generate` must yield steps of type GenerationStep. Given: {given(step)}"
    if not isinstance(step.tokens, list):
        return f"`GenerationStep.tokens` must be a list of tokens. Given: {given(step.tokens)}"
    if step.finish_reason is not None and step.finish_reason not in FINISH_REASONS:
        reasons = ", ".join(sorted(FINISH_REASONS))
        return f"`GenerationStep.finish_reason` must be None or one of {reasons}. Given: {given(step.finish_reason)}"
    if type(step.sequence_index) is not int:
        return f"`GenerationStep.sequence_index` must be an int. Given: {given(step.sequence_index)}"
    return next((fault for token in step.tokens if (fault := _token_fault(token))), None)


def _token_fault(token: object) -> str | None:
    if not isinstance(token, Token):
        return f"`GenerationStep.tokens` must contain tokens of type Token. Given: {given(token)}"
    if type(token.id) is not int:
        return f"`Token.id` must be an int. Given: {given(token.id)}"
    if not isinstance(token.text, str):
        return f"`Token.text` must be a str. Given: {given(token.text)}"
    if token.log_prob is not None and not isinstance(token.log_prob, NUMBER):
        return f"`Token.log_prob` must be a float or None. Given: {given(token.log_prob)}"
    return None


def _is_count(value: object, minimum: int) -> bool:
    return type(value) is int and value >= minimum
