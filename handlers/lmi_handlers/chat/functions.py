"""Conversion of OpenAI's older `functions` and `function_call` into `tools` and `tool_choice`."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator

from lmi_handlers.chat.call_ids import call_id
from lmi_handlers.chat.messages import Message, ToolCall
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
