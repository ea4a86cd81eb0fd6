"""Conversion of OpenAI's older `functions` and `function_call` into `tools` and `tool_choice`."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator

from lmi_core.parsing.tool_calls.template_formats import template_format
from lmi_handlers.chat.messages import AnyToolCall, Message, ToolCall
from lmi_handlers.fields.tool_fields import FunctionDefinition, FunctionName, Tool, ToolChoice, ToolNames

OLDER_NAMES = ToolNames(tools="functions", choice="function_call")


def _as_tool_choice(value: object) -> object:
    if value in ("none", "auto"):
        return {"type": value}
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return {"type": "function", "function": value}
    raise ValueError("must be none, auto or an object with the `name` of the function to call")


GivenFunctionCall = Annotated[
    ToolChoice, BeforeValidator(_as_tool_choice, json_schema_input_type=Literal["none", "auto"] | FunctionName)
]


def as_tools(functions: Sequence[FunctionDefinition]) -> list[Tool]:
    return [Tool(type="function", function=function) for function in functions]


def with_tool_messages(messages: Iterable[Message], template: str) -> list[Message]:
    """Return the messages with function calls and results as tool calls, the only form in chat templates."""
    written: list[Message] = []
    ids: list[str] = []  # of all calls in the messages so far
    num_answered = 0
    for message in messages:
        if message.function_call is not None:
            ids.append(call_id(template, message.function_call.name, len(ids)))
            call = ToolCall(id=ids[-1], function=message.function_call)
            message = message.model_copy(update={"tool_calls": [call], "function_call": None})
        elif message.role == "function":
            if num_answered == len(ids):  # a result whose call is not in the messages
                ids.append(call_id(template, str(getattr(message, "name", "")), len(ids)))
            given = getattr(message, "tool_call_id", None)
            message = message.model_copy(update={"role": "tool", "tool_call_id": given or ids[num_answered]})
            num_answered += 1
        written.append(message)
    return written


def call_id(template: str, name: str, number: int) -> str:
    """Return a call id that the template accepts: with the function for Kimi K2, of nine characters for Mistral."""
    return f"functions.{name}:{number}" if template_format(template) == "kimi_k2" else f"call{number % 100_000:05}"


def with_call_ids(messages: Iterable[Message], template: str) -> list[Message]:
    """Return the messages with an id for each tool call and result.

    A result without an id belongs to the first call without a result; with a `name`, to the first of that function.
    """
    written: list[Message] = []
    waiting: list[AnyToolCall] = []  # calls so far that have no result yet
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
        elif message.role == "tool" and (answered := _find_call(message, waiting)) is not None:
            waiting.remove(answered)
            message = message.model_copy(update={"tool_call_id": answered.id})
        written.append(message)
    return written


def _find_call(result: Message, waiting: Iterable[AnyToolCall]) -> AnyToolCall | None:
    """Return the call that a result answers, if it is one of these."""
    given, name = getattr(result, "tool_call_id", None), getattr(result, "name", None)
    if given is not None:
        return next((call for call in waiting if call.id == given), None)
    return next((call for call in waiting if name in (None, call.function.name)), None)
