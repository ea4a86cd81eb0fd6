"""The fields for tools in a request for a response, and their form in chats."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Tag, model_validator

from lmi_handlers.chat.schema import JsonObject
from lmi_handlers.fields.offered_tools import HOSTED, OWN, SEARCH, HostedTool, by_type
from lmi_handlers.fields.parameter_fields import RequestPart
from lmi_handlers.fields.tool_fields import (
    BY_TYPE,
    CHOICES,
    CUSTOM,
    FUNCTION,
    AnyTool,
    ChatCustomTool,
    CustomDefinition,
    FunctionDefinition,
    Tool,
    ToolChoice,
)

NAMESPACE = "namespace"
TYPES = "function or custom"


def name_in_chat(namespace: str | None, name: str) -> str:
    """Return a function's name for the model, in the form that MCP clients use."""
    return f"{namespace.removesuffix('__')}__{name}" if namespace else name


class FunctionTool(FunctionDefinition):
    """A function that the model may call."""

    type: Literal["function"]

    def for_chat(self, namespace: str | None = None) -> Tool:
        definition = self.model_dump(exclude={"type"}) | {"name": name_in_chat(namespace, self.name)}
        return Tool(type="function", function=FunctionDefinition.model_construct(**definition))

    def listed(self) -> JsonObject:
        """Return the tool in the form of answers."""
        return {"type": "function", **self.model_dump(exclude={"type"})}


class CustomTool(CustomDefinition):
    """A tool whose input is plain text, such as Codex's `apply_patch`."""

    type: Literal["custom"]

    def for_chat(self, namespace: str | None = None) -> ChatCustomTool:
        definition = CustomDefinition(
            name=name_in_chat(namespace, self.name), description=self.description, format=self.format
        )
        return ChatCustomTool(type="custom", custom=definition)

    def listed(self) -> JsonObject:
        """Return the tool in the form of answers."""
        return self.model_dump(exclude_none=True)


class NamespaceTool(RequestPart):
    """Tools under a common name, as Codex offers those of an MCP server."""

    type: Literal["namespace"]
    name: str = Field(min_length=1)
    description: str | None = None
    tools: list[Annotated[Annotated[FunctionTool, Tag(FUNCTION)] | Annotated[CustomTool, Tag(CUSTOM)], BY_TYPE]] = (
        Field(min_length=1)
    )

    def listed(self) -> JsonObject:
        return self.model_dump() | {"tools": [tool.listed() for tool in self.tools]}


class SearchTool(FunctionDefinition):
    """A search for further tools, which the client runs, such as that of Codex for tools of MCP servers."""

    type: Literal["tool_search"]
    execution: Literal["client"]
    name: Literal["tool_search"] = SEARCH

    def for_chat(self, namespace: str | None = None) -> Tool:
        definition = self.model_dump(exclude={"type", "execution"})
        return Tool(type="function", function=FunctionDefinition.model_construct(**definition))

    def listed(self) -> JsonObject:
        """Return the tool in the form of answers."""
        return self.model_dump(exclude={"name", "strict"})


CallableTool = FunctionTool | CustomTool | SearchTool
OwnTool = CallableTool | NamespaceTool
OfferedTools = list[
    Annotated[
        Annotated[FunctionTool, Tag(OWN)]
        | Annotated[CustomTool, Tag(CUSTOM)]
        | Annotated[NamespaceTool, Tag(f"<{NAMESPACE}>")]
        | Annotated[SearchTool, Tag(f"<{SEARCH}>")]
        | Annotated[HostedTool, Tag(HOSTED)],
        by_type("function", "custom", NAMESPACE, SEARCH),
    ]
]


def callable_tools(tools: Iterable[OwnTool | HostedTool]) -> dict[str, tuple[str | None, CallableTool]]:
    """Return the functions, custom tools and searches, each with its namespace, by their names in the chat.

    The last of several definitions with one name is used: some clients send all tools in each turn.
    """
    named: dict[str, tuple[str | None, CallableTool]] = {}
    for tool in tools:
        match tool:
            case FunctionTool() | CustomTool() | SearchTool():
                named[tool.name] = None, tool
            case NamespaceTool():
                named |= {name_in_chat(tool.name, each.name): (tool.name, each) for each in tool.tools}
    return named


def listed_tools(tools: Iterable[OwnTool | HostedTool]) -> list[JsonObject]:
    """Return the tools in the form of answers, without those of hosted services."""
    return [tool.listed() for tool in tools if not isinstance(tool, HostedTool)]


def chat_tools(tools: Iterable[OwnTool | HostedTool]) -> list[AnyTool]:
    return [tool.for_chat(namespace) for namespace, tool in callable_tools(tools).values()]


def members_of_calls(tools: Iterable[OwnTool | HostedTool]) -> dict[str, JsonObject]:
    """Map the names in the chat of searches and of tools in namespaces to the members that name them in calls."""
    return {
        name: {"execution": tool.execution}
        if isinstance(tool, SearchTool)
        else {"namespace": namespace, "name": tool.name}
        for name, (namespace, tool) in callable_tools(tools).items()
        if namespace is not None or isinstance(tool, SearchTool)
    }


class ChosenTool(RequestPart):
    type: Literal["function", "custom"] = "function"
    name: str = Field(min_length=1)


class ResponseToolChoice(RequestPart):
    type: Literal["none", "auto", "required", "function", "custom", "allowed_tools"]
    name: str | None = Field(None, min_length=1, description="The tool to call.")
    mode: Literal["auto", "required"] | None = Field(None, description="auto, or required: call a tool.")
    tools: list[ChosenTool] | None = Field(None, min_length=1, description="The tools that may be called.")

    @model_validator(mode="after")
    def _check_fields(self) -> "ResponseToolChoice":
        if (self.type in ("function", "custom")) != (self.name is not None):
            raise ValueError("must be none, auto, required, or an object that names a tool")
        if (self.type == "allowed_tools") != (self.mode is not None and self.tools is not None):
            raise ValueError("must have `mode` and `tools` if and only if its `type` is allowed_tools")
        return self

    def for_chat(self) -> ToolChoice:
        choice: dict[str, Any] = {"type": self.type}
        if self.name is not None:
            choice[self.type] = {"name": self.name}
        if self.tools is not None:
            names = [{"type": tool.type, tool.type: {"name": tool.name}} for tool in self.tools]
            choice["allowed_tools"] = {"mode": self.mode, "tools": names}
        return ToolChoice.model_validate(choice)

    def listed(self) -> JsonObject | str:
        """Return the choice in the form of answers."""
        return self.type if self.type in CHOICES else self.model_dump(exclude_none=True)


GivenChoice = Annotated[
    ResponseToolChoice,
    BeforeValidator(
        lambda value: {"type": value} if isinstance(value, str) else value,
        json_schema_input_type=str | ResponseToolChoice,
    ),
]
