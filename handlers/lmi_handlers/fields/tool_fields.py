"""The fields of a chat request for tools: the offered tools, and the choice among them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, field_validator, model_validator

from lmi_core.errors import InvalidPayload
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_handlers.fields.parameter_fields import RequestPart
from lmi_handlers.fields.tool_schemas import check_tool_schema

CHOICES = ("none", "auto", "required")


class ToolNames(NamedTuple):
    """The client's names of the fields for tools, for messages."""

    tools: str = "tools"
    choice: str = "tool_choice"
    allowed_tool: str = "tool_choice.allowed_tools.tools.{}.function.name"  # to be filled in with an index


class FunctionName(RequestPart):
    name: str = Field(min_length=1)


class FunctionDefinition(FunctionName):
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="The JSON schema of the arguments.")
    strict: bool | None = Field(
        None, description="Ignored: the arguments of a call that `tool_choice` requires always follow the schema."
    )

    @field_validator("parameters")
    @classmethod
    def _a_json_schema(cls, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
        check_tool_schema(parameters or {})
        return parameters

    @property
    def members(self) -> dict[str, Any]:
        """The fields that are not null."""
        return {name: value for name, value in self if value is not None}


class Tool(RequestPart):
    type: Literal["function"] = "function"
    function: FunctionDefinition

    @property
    def for_template(self) -> dict[str, Any]:
        """The tool as the client wrote it, including null values in its parameters, such as defaults."""
        return {"type": self.type, "function": self.function.members}


class AllowedTool(RequestPart):
    type: Literal["function"] = "function"
    function: FunctionName


class AllowedTools(RequestPart):
    mode: Literal["auto", "required"]
    tools: list[AllowedTool] = Field(
        min_length=1, description="The subset of the request's `tools` that may be called."
    )


class ToolChoice(RequestPart):
    type: Literal["none", "auto", "required", "function", "allowed_tools"]
    function: FunctionName | None = None
    allowed_tools: AllowedTools | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> "ToolChoice":
        if (self.type == "function") != (self.function is not None):
            raise ValueError("must be none, auto, required or a named function")
        if (self.type == "allowed_tools") != (self.allowed_tools is not None):
            raise ValueError("must have `allowed_tools` if and only if its `type` is allowed_tools")
        return self

    @property
    def mode(self) -> Literal["none", "auto", "required", "function", "allowed_tools"]:
        """The choice among the allowed tools."""
        return self.allowed_tools.mode if self.allowed_tools else self.type

    def select(self, tools: Sequence[Tool], fields: ToolNames) -> list[Tool]:
        """Return the tools that may be called. Raise InvalidPayload if the choice names others."""
        if self.allowed_tools is None:
            return list(tools)
        offered = {tool.function.name for tool in tools}
        names = [tool.function.name for tool in self.allowed_tools.tools]
        for index, name in enumerate(names):
            if name not in offered:
                place = fields.allowed_tool.format(index)
                raise InvalidPayload(
                    f"`{place}` must name one of `{fields.tools}`. Given: {name!r}.{did_you_mean(name, offered)}"
                )
        return [tool for tool in tools if tool.function.name in names]


def _as_choice(value: object) -> object:
    """Return a tool choice in OpenAI's form; Hugging Face's clients send a name, or an object without a type."""
    if isinstance(value, str):
        return {"type": value} if value in CHOICES else {"type": "function", "function": {"name": value}}
    if isinstance(value, dict) and "type" not in value and "function" in value:
        return {**value, "type": "function"}
    return value


GivenToolChoice = Annotated[
    ToolChoice,
    BeforeValidator(_as_choice, json_schema_input_type=str | ToolChoice),
]
