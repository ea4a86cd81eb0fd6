"""The fields of a chat request for tools: the offered tools, and the choice among them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import orjson
from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from lmi_core.errors import InvalidPayload
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_handlers.fields.parameter_fields import RequestPart
from lmi_handlers.fields.tool_schemas import check_tool_schema

CHOICES = ("none", "auto", "required")
FUNCTION, CUSTOM = "<function>", "<custom>"  # internal tags of the types of tools
INPUT = "input"  # the only argument of the function that represents a custom tool


def _tag(given: object) -> str | None:
    kind = given.get("type") if isinstance(given, dict) else getattr(given, "type", None)
    if kind is None or kind == "function":
        return FUNCTION
    return CUSTOM if kind == "custom" else None


BY_TYPE = Discriminator(_tag, "unknown_tool", "must be of the type function or custom")


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
    def for_template(self) -> dict[str, Any]:
        """The function as the client wrote it, including null values in its parameters, such as defaults."""
        return {"type": "function", "function": {name: value for name, value in self if value is not None}}


class Tool(RequestPart):
    type: Literal["function"] = "function"
    function: FunctionDefinition


class InputGrammar(RequestPart):
    syntax: Literal["lark", "regex"]
    definition: str


class InputFormat(RequestPart):
    """The format of a custom tool's input: a grammar in the form of chats, or in that of responses."""

    type: Literal["text", "grammar"]
    grammar: InputGrammar | None = Field(None, description="In chats: the grammar.")
    syntax: Literal["lark", "regex"] | None = Field(None, description="In responses: the syntax of the grammar.")
    definition: str | None = Field(None, description="In responses: the grammar.")

    @model_validator(mode="after")
    def _has_a_grammar(self) -> "InputFormat":
        if self.type == "grammar" and (self.syntax is None or self.definition is None) and self.grammar is None:
            raise ValueError("must have the `syntax` and the `definition` of the grammar")
        return self

    @property
    def instruction(self) -> str:
        """The format in words, for the model."""
        if self.type == "text":
            return ""
        grammar = self.grammar or self
        return f"The input must match this {grammar.syntax} grammar:\n{grammar.definition}"


class CustomDefinition(FunctionName):
    description: str | None = None
    format: InputFormat | None = Field(None, description="Part of the description for the model; not enforced.")


class ChatCustomTool(RequestPart):
    """A tool whose input is plain text."""

    type: Literal["custom"]
    custom: CustomDefinition

    @property
    def function(self) -> FunctionDefinition:
        """The function that represents the tool for the model."""
        given = self.custom
        texts = (
            given.description,
            f"Pass the whole text as the argument `{INPUT}`.",
            given.format.instruction if given.format else None,
        )
        return FunctionDefinition.model_construct(
            name=given.name,
            description="\n\n".join(filter(None, texts)),
            parameters={
                "type": "object",
                "properties": {INPUT: {"type": "string"}},
                "required": [INPUT],
                "additionalProperties": False,
            },
        )


AnyTool = Annotated[Annotated[Tool, Tag(FUNCTION)] | Annotated[ChatCustomTool, Tag(CUSTOM)], BY_TYPE]


def input_as_arguments(text: str) -> str:
    """Return the input of a custom tool as the arguments of the function that represents it."""
    return orjson.dumps({INPUT: text}).decode()


class AllowedTool(RequestPart):
    type: Literal["function"] = "function"
    function: FunctionName


class AllowedCustomTool(RequestPart):
    type: Literal["custom"]
    custom: FunctionName

    @property
    def function(self) -> FunctionName:
        return self.custom


class AllowedTools(RequestPart):
    mode: Literal["auto", "required"]
    tools: list[
        Annotated[Annotated[AllowedTool, Tag(FUNCTION)] | Annotated[AllowedCustomTool, Tag(CUSTOM)], BY_TYPE]
    ] = Field(min_length=1, description="The subset of the request's `tools` that may be called.")


class ToolChoice(RequestPart):
    type: Literal["none", "auto", "required", "function", "custom", "allowed_tools"]
    function: FunctionName | None = None
    custom: FunctionName | None = None
    allowed_tools: AllowedTools | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> "ToolChoice":
        if any((self.type == kind) != (getattr(self, kind) is not None) for kind in ("function", "custom")):
            raise ValueError("must be none, auto, required or a named tool")
        if (self.type == "allowed_tools") != (self.allowed_tools is not None):
            raise ValueError("must have `allowed_tools` if and only if its `type` is allowed_tools")
        return self

    @property
    def mode(self) -> Literal["none", "auto", "required", "function", "custom", "allowed_tools"]:
        """The choice among the allowed tools."""
        return self.allowed_tools.mode if self.allowed_tools else self.type

    @property
    def named(self) -> str | None:
        """The name of the tool to call."""
        chosen = self.function or self.custom
        return chosen.name if chosen else None

    def select(self, tools: Sequence[AnyTool], fields: ToolNames) -> list[AnyTool]:
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
