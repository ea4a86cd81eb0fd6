"""The messages of a chat request, and what a chat template gets of them."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from lmi_core.backend import Backend
from lmi_core.chats.chat_template import takes_parts

TEXT_PARTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}  # to the member that holds the text


class ImageUrl(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    url: str = Field(description="Of the image, or the image itself in base64.")
    detail: str | None = None


def _as_image_url(given: object) -> object:
    return {"url": given} if isinstance(given, str) else given


class ContentPart(BaseModel):
    """Further members, such as `cache_control`, are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True)

    type: Literal["text", "image_url"]
    text: str | None = None
    image_url: Annotated[
        ImageUrl | None, BeforeValidator(_as_image_url, json_schema_input_type=ImageUrl | str | None)
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _other_texts(cls, part: object) -> object:
        """What an assistant said, sent back in the forms of other interfaces of OpenAI's."""
        if isinstance(part, dict) and (member := TEXT_PARTS.get(str(part.get("type")))):
            return {"type": "text", "text": part.get(member)}
        return part

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> "ContentPart":
        given = [name for name in ("text", "image_url") if getattr(self, name) is not None]
        if given != [self.type]:
            raise ValueError(f"must have `{self.type}`, and no other content")
        return self


def _as_json(given: object) -> object:
    return orjson.dumps(given).decode() if isinstance(given, dict) else given


class FunctionCall(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    name: str
    arguments: Annotated[str, BeforeValidator(_as_json, json_schema_input_type=str | dict[str, Any])] = Field(
        description="A JSON object, as text."
    )

    @field_validator("arguments")
    @classmethod
    def _json_object(cls, text: str) -> str:
        try:
            value = orjson.loads(text or "{}")
        except orjson.JSONDecodeError as error:
            raise ValueError(f"must be a JSON object as text: {error}") from None
        if not isinstance(value, dict):
            raise ValueError("must be a JSON object as text")
        return text


class ToolCall(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)  # clients send a stream's `index` back

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


REASONING = (("reasoning", "reasoning_content"), ("reasoning_content", "reasoning"))  # templates have the one or other


def _as_parts(content: object) -> object:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


Parts = Annotated[list[ContentPart], BeforeValidator(_as_parts, json_schema_input_type=str | list[ContentPart])]


class Message(BaseModel):
    """Further members are handed to the chat template as they are."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Parts | None = Field(None, validate_default=True, description="A text, or a list of parts.")
    tool_calls: list[ToolCall] | None = None
    function_call: FunctionCall | None = Field(None, description="The older form of `tool_calls`.")

    @field_validator("content")
    @classmethod
    def _not_missing(cls, content: list[ContentPart] | None, info: ValidationInfo) -> list[ContentPart] | None:
        if content is None and info.data.get("role") != "assistant":
            raise ValueError("must be a text, or a list of parts")
        return content

    @model_validator(mode="after")
    def _calls_in_one_form(self) -> "Message":
        if self.tool_calls and self.function_call is not None:
            raise ValueError("must have `tool_calls` or `function_call`, the older form of it, but not both")
        return self

    @property
    def text(self) -> str:
        """Of all parts of the content."""
        return "".join(part.text or "" for part in self.content or [])


def template_messages(messages: Iterable[Message], template: str, backend: Backend[Any]) -> list[dict[str, Any]]:
    """Of a model that takes images the contents are lists of parts, if its template takes those."""
    contents = PartsWriter() if backend.max_images and takes_parts(template) else TextWriter(backend)
    return [_template_message(message, template, contents) for message in messages]


class PartsWriter:
    """Lists of parts; what is to be put in an image's place, the template knows."""

    def write(self, parts: Sequence[ContentPart]) -> list[dict[str, str]]:
        return [{"type": "text", "text": part.text} if part.text is not None else {"type": "image"} for part in parts]


class TextWriter:
    """Texts, which begin with what stands for the images, numbered through the chat."""

    def __init__(self, backend: Backend[Any]) -> None:
        self._placeholder = backend.image_placeholder
        self._numbers = itertools.count(1)

    def write(self, parts: Sequence[ContentPart]) -> str:
        images = [self._placeholder(next(self._numbers)) for part in parts if part.image_url is not None]
        texts = [part.text for part in parts]
        return "\n".join(text for text in (*images, *texts) if text is not None)


def _template_message(message: Message, template: str, contents: PartsWriter | TextWriter) -> dict[str, Any]:
    parts = message.content or []
    further = {name: value for name, value in (message.model_extra or {}).items() if value is not None}
    for name, other in REASONING:
        if name in further:
            further.setdefault(other, further[name])
    rendered = {"role": message.role, "content": contents.write(parts), **further}
    if message.role == "developer" and "developer" not in template:  # newer clients' name for the system
        rendered["role"] = "system"
    if message.tool_calls:
        rendered["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    return rendered


def _template_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": orjson.loads(call.function.arguments or "{}")}
    return {"id": call.id, "type": call.type, "function": function}
