"""The fields for tools in a request for a response, and their form in chats."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Tag, model_validator

from lmi_handlers.chat.schema import JsonObject
from lmi_handlers.fields.offered_tools import HOSTED, OWN, HostedTool, by_type, some_own
from lmi_handlers.fields.tool_fields import CHOICES, FunctionDefinition, Tool, ToolChoice

FUNCTION = "function"


class FunctionTool(FunctionDefinition):
    """A function that the model may call."""

    type: Literal["function"]

    def for_chat(self) -> Tool:
        definition = self.model_dump(exclude={"type"})
        return Tool(type="function", function=FunctionDefinition.model_construct(**definition))

    def listed(self) -> JsonObject:
        """Return the tool in the form of answers."""
        return {"type": "function", **self.model_dump(exclude={"type"})}


OfferedTools = Annotated[
    list[Annotated[Annotated[FunctionTool, Tag(OWN)] | Annotated[HostedTool, Tag(HOSTED)], by_type(FUNCTION)]],
    some_own(FUNCTION),
]


class ChosenTool(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["function"] = "function"
    name: str = Field(min_length=1)


class ResponseToolChoice(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["none", "auto", "required", "function", "allowed_tools"]
    name: str | None = Field(None, min_length=1, description="The function to call.")
    mode: Literal["auto", "required"] | None = Field(None, description="auto, or required: call a tool.")
    tools: list[ChosenTool] | None = Field(None, min_length=1, description="The tools that may be called.")

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> "ResponseToolChoice":
        if (self.type == "function") != (self.name is not None):
            raise ValueError("must be none, auto, required, or an object that names a function")
        if (self.type == "allowed_tools") != (self.mode is not None and self.tools is not None):
            raise ValueError("must have `mode` and `tools` where its `type` is allowed_tools, and only there")
        return self

    def for_chat(self) -> ToolChoice:
        choice: dict[str, Any] = {"type": self.type}
        if self.name is not None:
            choice["function"] = {"name": self.name}
        if self.tools is not None:
            names = [{"type": "function", "function": {"name": tool.name}} for tool in self.tools]
            choice["allowed_tools"] = {"mode": self.mode, "tools": names}
        return ToolChoice.model_validate(choice)

    def listed(self) -> JsonObject | str:
        """Return the choice in the form of answers."""
        return self.type if self.type in CHOICES else self.model_dump(exclude_none=True)


def _as_choice(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


GivenChoice = Annotated[
    ResponseToolChoice, BeforeValidator(_as_choice, json_schema_input_type=str | ResponseToolChoice)
]
