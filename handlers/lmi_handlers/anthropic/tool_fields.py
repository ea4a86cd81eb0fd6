"""The request fields for tools: the offered tools, and the choice among them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Tag, field_validator, model_validator

from lmi_handlers.fields import tool_fields as chat
from lmi_handlers.fields.offered_tools import HOSTED, OWN, HostedTool, by_type, some_own
from lmi_handlers.fields.tool_schemas import check_tool_schema

CUSTOM = "custom"


class AnthropicTool(BaseModel):
    """A tool that the client runs."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["custom"] | None = Field(None, description="`custom` or null.")
    name: str = Field(min_length=1)
    description: str | None = None
    input_schema: dict[str, Any] | None = Field(None, description="The JSON schema of the input.")
    strict: bool | None = Field(None, description="Ignored: required calls always follow the schema.")

    @field_validator("input_schema")
    @classmethod
    def _a_json_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        check_tool_schema(schema or {})
        return schema

    @model_validator(mode="after")
    def _has_a_schema(self) -> "AnthropicTool":
        if self.input_schema is None:
            raise ValueError("must have an `input_schema`")
        return self

    @property
    def for_chat(self) -> chat.Tool:
        # Not validated again, because coding agents send dozens of large schemas with every message.
        function = chat.FunctionDefinition.model_construct(
            name=self.name,
            description=self.description,
            parameters={"type": "object", **(self.input_schema or {})},
            strict=self.strict,
        )
        return chat.Tool.model_construct(type="function", function=function)


OfferedTools = Annotated[
    list[Annotated[Annotated[AnthropicTool, Tag(OWN)] | Annotated[HostedTool, Tag(HOSTED)], by_type(CUSTOM)]],
    some_own(CUSTOM),
]


class AnthropicToolChoice(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = Field(None, min_length=1, description="With the type tool: the name of the tool to use.")
    disable_parallel_tool_use: bool | None = Field(None, description="Whether to allow at most one tool use.")

    @model_validator(mode="after")
    def _names_a_tool(self) -> "AnthropicToolChoice":
        if (self.type == "tool") != (self.name is not None):
            raise ValueError("must have the `name` of a tool if and only if its `type` is tool")
        return self

    @property
    def for_chat(self) -> chat.ToolChoice:
        match self.type:
            case "any":
                return chat.ToolChoice(type="required")
            case "tool":
                return chat.ToolChoice(type="function", function=chat.FunctionName(name=str(self.name)))
            case "auto" | "none" as kind:
                return chat.ToolChoice(type=kind)
