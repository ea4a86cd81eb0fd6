"""Ids of past tool calls and their results, for requests without ids."""

from collections.abc import Iterable

from lmi_core.parsing.tool_calls.template_formats import template_format
from lmi_handlers.chat.messages import Message, ToolCall


def call_id(template: str, name: str, number: int) -> str:
    """Return a call id that the template accepts: with the function for Kimi K2, of nine characters for Mistral."""
    return f"functions.{name}:{number}" if template_format(template) == "kimi_k2" else f"call{number % 100_000:05}"


def with_call_ids(messages: Iterable[Message], template: str) -> list[Message]:
    """Return the messages with an id for each tool call and result.

    A result without an id belongs to the first call without a result; with a `name`, to the first of that function.
    """
    written: list[Message] = []
    waiting: list[ToolCall] = []  # calls so far that have no result yet
    number = 0
    for message in messages:
        if message.tool_calls:
            calls = [
                call
                if call.id
                else call.model_copy(update={"id": call_id(template, call.function.name, number + place)})
                for place, call in enumerate(message.tool_calls)
            ]
            number += len(calls)
            waiting += calls
            message = message.model_copy(update={"tool_calls": calls})
        elif message.role == "tool" and (answered := _answered(message, waiting)) is not None:
            waiting.remove(answered)
            message = message.model_copy(update={"tool_call_id": answered.id})
        written.append(message)
    return written


def _answered(result: Message, waiting: Iterable[ToolCall]) -> ToolCall | None:
    """Return the call that a result answers, if it is one of these."""
    given, name = getattr(result, "tool_call_id", None), getattr(result, "name", None)
    if given is not None:
        return next((call for call in waiting if call.id == given), None)
    return next((call for call in waiting if name in (None, call.function.name)), None)
