"""The items of a response's input: messages, calls and their results, reasoning, and references to items."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args
from uuid import uuid4

import orjson
from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from lmi_handlers.chat.messages import ContentPart, ImageUrl, json_text
from lmi_handlers.chat.schema import JsonObject
from lmi_handlers.fields.offered_tools import SEARCH
from lmi_handlers.fields.parameter_fields import RequestPart
from lmi_handlers.fields.tool_fields import input_as_arguments
from lmi_handlers.responses.tools import OfferedTools, callable_tools, listed_tools, name_in_chat

Status = Literal["in_progress", "completed", "incomplete"]


class InputItem(RequestPart):
    """The base of items; members that are not declared, such as `annotations`, are ignored."""

    id: str | None = None
    status: Status | None = None

    @property
    def unreadable(self) -> tuple[str, str] | None:
        """The name of an item that adds nothing to the chat, and the reason, both for the client."""
        return None

    def listed(self) -> JsonObject:
        """Return the item in the form of the list of input items, always with an id."""
        members = self.model_dump(exclude={"id", "status"}, exclude_none=True)
        item_id = self.id or f"{ID_PREFIXES[type(self)]}_{uuid4().hex}"
        return {"type": members.pop("type"), "id": item_id, "status": self.status or "completed", **members}


class InputPart(RequestPart):
    """A text or an image."""

    type: Literal["input_text", "output_text", "text", "refusal", "input_image"]
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = Field(None, description="The URL of the image, or the image itself in base64.")
    file_id: str | None = Field(None, description="Not supported: this server stores no files.")
    detail: str | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> "InputPart":
        if self.file_id is not None:
            raise ValueError("must have `image_url`: this server stores no files for `file_id`")
        member = {"input_image": "image_url", "refusal": "refusal"}.get(self.type, "text")
        if getattr(self, member) is None:
            raise ValueError(f"must have `{member}`")
        return self

    @property
    def written(self) -> str:
        """The text of a part that is not an image."""
        return self.text or self.refusal or ""

    def for_chat(self) -> ContentPart:
        if self.type == "input_image":
            url = ImageUrl(url=self.image_url or "", detail=self.detail)
            return ContentPart(type="image_url", image_url=url)
        return ContentPart(type="text", text=self.written)

    def listed(self, role: str) -> JsonObject:
        if self.type == "input_image":
            return {"type": "input_image", "image_url": self.image_url, "detail": self.detail or "auto"}
        if self.type == "refusal":
            return {"type": "refusal", "refusal": self.refusal}
        if role == "assistant":
            return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}
        return {"type": "input_text", "text": self.text}


def _as_parts(content: object) -> object:
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


Parts = Annotated[list[InputPart], BeforeValidator(_as_parts, json_schema_input_type=str | list[InputPart])]


class MessageItem(InputItem):
    """A message: the client's in any form, or one from an earlier answer."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Parts = Field(description="A text, or a list of parts.")

    def listed(self) -> JsonObject:
        return super().listed() | {"content": [part.listed(self.role) for part in self.content]}


class CalledItem(InputItem):
    """The base of calls by the model."""

    call_id: str = Field(min_length=1)
    namespace: str | None = Field(None, description="The namespace of the tool.")
    name: str = Field(min_length=1)

    @property
    def name_in_chat(self) -> str:
        return name_in_chat(self.namespace, self.name)


class FunctionCallItem(CalledItem):
    """A call of a function."""

    type: Literal["function_call"]
    arguments: str = Field(description="A JSON object, as text.")


class CustomCallItem(CalledItem):
    """A call of a custom tool, whose input is plain text."""

    type: Literal["custom_tool_call"]
    input: str

    @property
    def arguments(self) -> str:
        """The arguments of the function that represents the tool in chats."""
        return input_as_arguments(self.input)


class HostedCallItem(InputItem):
    """A call of a tool that another server ran itself; the next message contains the result."""

    model_config = ConfigDict(extra="allow")

    type: Literal[
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_list_tools",
        "mcp_call",
    ]
    status: Any = None  # the allowed values depend on the type

    @property
    def unreadable(self) -> tuple[str, str]:
        return self.type, f"{self.type} belongs to a tool that another server ran"


class FunctionOutputItem(InputItem):
    """The result of a called function, or of another tool of the client."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str = Field(min_length=1)
    output: Parts = Field(description="A text, or a list of parts.")

    def listed(self) -> JsonObject:
        (*others, last) = parts = [part.listed("user") for part in self.output] or [{"type": "input_text", "text": ""}]
        output = last["text"] if not others and last["type"] == "input_text" else parts
        return super().listed() | {"output": output}


class ReasoningPart(RequestPart):
    type: Literal["reasoning_text", "summary_text", "text"]
    text: str


class ReasoningItem(InputItem):
    """The reasoning before an earlier answer."""

    type: Literal["reasoning"]
    content: list[ReasoningPart] | None = None
    summary: list[ReasoningPart] | None = Field(None, description="The reasoning, if `content` is empty.")
    encrypted_content: str | None = None

    @property
    def unreadable(self) -> tuple[str, str] | None:
        if self.encrypted_content is None or self.written:
            return None
        name = "reasoning.encrypted_content"
        return name, f"only the server that wrote {name} can read it"

    @property
    def written(self) -> str:
        return "".join(part.text for part in self.content or self.summary or ())

    def listed(self) -> JsonObject:
        return super().listed() | {
            "summary": [{"type": "summary_text", "text": part.text} for part in self.summary or ()],
            "content": [{"type": "reasoning_text", "text": part.text} for part in self.content or ()],
            "encrypted_content": self.encrypted_content,
        }


class AdditionalToolsItem(InputItem):
    """Tools in addition to those of the request, in the form in which Codex offers all of its own."""

    type: Literal["additional_tools"]
    tools: OfferedTools

    def listed(self) -> JsonObject:
        return super().listed() | {"role": "developer", "tools": listed_tools(self.tools)}


class SearchCallItem(InputItem):
    """A call of the client's search for tools."""

    type: Literal["tool_search_call"]
    call_id: str = Field(min_length=1)
    execution: Literal["client"] = "client"
    arguments: Annotated[str, BeforeValidator(json_text, json_schema_input_type=dict[str, Any])] = Field(
        description="A JSON object."
    )

    @property
    def name_in_chat(self) -> str:
        return SEARCH

    def listed(self) -> JsonObject:
        return super().listed() | {"arguments": orjson.loads(self.arguments)}


class SearchOutputItem(InputItem):
    """The tools that a search has found, which the model may call from then on."""

    type: Literal["tool_search_output"]
    call_id: str = Field(min_length=1)
    execution: Literal["client"] = "client"
    tools: OfferedTools

    @property
    def output(self) -> list[InputPart]:
        """The result in the chat: the names, because the tools themselves are offered beside all others."""
        names = ", ".join(callable_tools(self.tools))
        text = f"You can now call these tools: {names}" if names else "No tools were found."
        return [InputPart(type="input_text", text=text)]

    def listed(self) -> JsonObject:
        return super().listed() | {"tools": listed_tools(self.tools)}


class ItemReference(InputItem):
    """An item of a stored response, by its id."""

    type: Literal["item_reference"] | None = None
    id: str = Field(min_length=1)


TYPES: dict[str, type[InputItem]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": FunctionOutputItem,
    "custom_tool_call": CustomCallItem,
    "custom_tool_call_output": FunctionOutputItem,
    "reasoning": ReasoningItem,
    "additional_tools": AdditionalToolsItem,
    "tool_search_call": SearchCallItem,
    "tool_search_output": SearchOutputItem,
    "item_reference": ItemReference,
    **dict.fromkeys(get_args(HostedCallItem.model_fields["type"].annotation), HostedCallItem),
}
ID_PREFIXES: dict[type[InputItem], str] = {
    MessageItem: "msg",
    FunctionCallItem: "fc",
    FunctionOutputItem: "fco",
    CustomCallItem: "ctc",
    HostedCallItem: "hc",
    ReasoningItem: "rs",
    AdditionalToolsItem: "at",
    SearchCallItem: "tsc",
    SearchOutputItem: "tso",
    ItemReference: "ref",
}


def _tag(given: Any) -> str | None:
    """Return the tag of an item; one without a type is a message, or a reference if it only has an id."""
    if isinstance(given, InputItem):
        return _tag_of(type(given))
    if not isinstance(given, dict):
        return None
    kind = given.get("type")
    if kind is None:
        kind = "item_reference" if "id" in given and "role" not in given else "message"
    return _tag_of(TYPES[kind]) if isinstance(kind, str) and kind in TYPES else None


def _tag_of(wanted: type[InputItem]) -> str:
    return next(f"<{name}>" for name, kind in TYPES.items() if kind is wanted)


Item = Annotated[
    Annotated[MessageItem, Tag("<message>")]
    | Annotated[FunctionCallItem, Tag("<function_call>")]
    | Annotated[FunctionOutputItem, Tag("<function_call_output>")]
    | Annotated[CustomCallItem, Tag("<custom_tool_call>")]
    | Annotated[ReasoningItem, Tag("<reasoning>")]
    | Annotated[AdditionalToolsItem, Tag("<additional_tools>")]
    | Annotated[SearchCallItem, Tag("<tool_search_call>")]
    | Annotated[SearchOutputItem, Tag("<tool_search_output>")]
    | Annotated[ItemReference, Tag("<item_reference>")]
    | Annotated[HostedCallItem, Tag("<web_search_call>")],
    Discriminator(_tag, "unknown_item", f"must be an item of one of the types {', '.join(TYPES)}"),
]
CallItem = FunctionCallItem | CustomCallItem | SearchCallItem
ResultItem = FunctionOutputItem | SearchOutputItem
ToolsItem = AdditionalToolsItem | SearchOutputItem
# Items that contain their content
Known = MessageItem | CallItem | ResultItem | ReasoningItem | HostedCallItem | AdditionalToolsItem


def offered_tools(tools: OfferedTools | None, items: Iterable[InputItem]) -> OfferedTools:
    """Return the tools that items of the conversation add, and those of the request, which are newer."""
    return [*(tool for item in items if isinstance(item, ToolsItem) for tool in item.tools), *(tools or ())]


def _as_items(given: object) -> object:
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


Items = Annotated[list[Item], BeforeValidator(_as_items, json_schema_input_type=str | list[Item])]
