"""Content blocks of messages: texts, images, documents, uses of tools and their results, and past thinking."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from lmi_handlers.chat.images import LINKS
from lmi_handlers.fields.parameter_fields import RequestPart

IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
# The required members of each type of block.
NEEDED = {
    "text": ("text",),
    "image": ("source",),
    "document": ("source",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking",),
    "redacted_thinking": (),
    "tool_reference": ("tool_name",),
}
BLOCKS_OF_ROLES = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "system": ("text",),
}
BLOCKS_OF_RESULTS = ("text", "image", "document", "tool_reference")
BLOCKS_OF_DOCUMENTS = ("text", "image")


def as_blocks(content: object) -> object:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def as_no_blocks(content: object) -> object:
    return [] if content is None else as_blocks(content)


class Source(RequestPart):
    """The source of an image or a document; its type determines its members."""

    type: Literal["base64", "url", "text", "content", "file"]
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    content: Annotated[
        "list[ContentBlock] | None",
        BeforeValidator(as_blocks, json_schema_input_type="str | list[ContentBlock] | None"),
    ] = None


class Citations(RequestPart):
    enabled: bool | None = None


class ContentBlock(RequestPart):
    """A block; members without effect here, such as `cache_control`, are ignored."""

    type: Literal[
        "text", "image", "document", "tool_use", "tool_result", "tool_reference", "thinking", "redacted_thinking"
    ]
    text: str | None = None
    source: Source | None = Field(None, description="The content of an image or a document.")
    title: str | None = Field(None, description="The title of a document.")
    context: str | None = Field(None, description="The context of a document.")
    citations: Citations | list[Any] | None = None
    id: str | None = Field(None, min_length=1, description="The id of a tool use.")
    name: str | None = Field(None, min_length=1, description="The tool to use.")
    input: dict[str, Any] | None = Field(None, description="The input of the tool.")
    tool_use_id: str | None = Field(None, min_length=1, description="The id of the tool use with this result.")
    tool_name: str | None = Field(None, min_length=1, description="The tool found by a tool search.")
    content: Annotated[
        "list[ContentBlock]",
        BeforeValidator(as_no_blocks, json_schema_input_type="str | list[ContentBlock] | None"),
    ] = Field(default_factory=list, description="The result of a tool: a text, or blocks.")
    is_error: bool | None = Field(None, description="Whether the tool has failed.")
    thinking: str | None = None

    @model_validator(mode="after")
    def _check_fields(self) -> "ContentBlock":
        for name in NEEDED[self.type]:
            if getattr(self, name) is None:
                raise ValueError(f"must have `{name}`, because its type is {self.type}")
        if self.source is not None and self.type in SOURCE_CHECKS:
            SOURCE_CHECKS[self.type](self.source)
        check_blocks(self.content, BLOCKS_OF_RESULTS, "a tool's result")
        if isinstance(self.citations, Citations) and self.citations.enabled:
            raise ValueError("must have no `citations`: they are not supported")
        return self


def check_blocks(blocks: Iterable[ContentBlock], types: Iterable[str], owner: str) -> None:
    """Raise ValueError for the first block with a type that its owner does not allow."""
    for index, block in enumerate(blocks):
        if block.type not in types:
            raise ValueError(
                f"must contain blocks of the types {', '.join(types)} in {owner}, not {block.type} ({index})"
            )


def _check_image(source: Source) -> None:
    if source.type == "base64":
        if source.media_type not in IMAGE_TYPES or source.data is None:
            raise ValueError(
                f"must have `source.data`, and a `source.media_type` that is one of {', '.join(IMAGE_TYPES)}"
            )
    elif source.type != "url":
        raise ValueError(f"must have a `source` of the type base64 or url, not {source.type}: no files are stored")
    elif source.url is None or not source.url.lower().startswith(LINKS):
        raise ValueError("must have an http or https URL as `source.url`")


def _check_document(source: Source) -> None:
    if source.type not in ("text", "content"):
        raise ValueError(
            f"must have a `source` of the type text or content, not {source.type}: PDFs and stored files are not read. "
            "Send the text of the document instead, extracted with a program such as pdftotext"
        )
    if (source.data if source.type == "text" else source.content) is None:
        raise ValueError(f"must have `source.{'data' if source.type == 'text' else 'content'}`")
    check_blocks(source.content or (), BLOCKS_OF_DOCUMENTS, "a document")


SOURCE_CHECKS: dict[str, Callable[[Source], None]] = {"image": _check_image, "document": _check_document}
