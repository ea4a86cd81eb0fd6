"""The messages of a chat request, and what a chat template gets of them."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from lmi_core.errors import InvalidPayload


class ImageUrl(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    url: str = Field(description="Of the image, or the image itself in base64.")
    detail: str | None = None


class ContentPart(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text", "image_url"]
    text: str | None = None
    image_url: ImageUrl | None = None

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> "ContentPart":
        if getattr(self, self.type) is None:
            raise ValueError(f"must have `{self.type}`")
        return self


class FunctionCall(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    arguments: str = Field(description="A JSON object, as text.")

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


def _as_parts(content: object) -> object:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


Parts = Annotated[list[ContentPart], BeforeValidator(_as_parts, json_schema_input_type=str | list[ContentPart])]


class Message(BaseModel):
    """Further members are handed to the chat template as they are."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Parts | None = Field(None, validate_default=True, description="A text, or a list of parts.")
    tool_calls: list[ToolCall] | None = None

    @field_validator("content")
    @classmethod
    def _not_missing(cls, content: list[ContentPart] | None, info: ValidationInfo) -> list[ContentPart] | None:
        if content is None and info.data.get("role") != "assistant":
            raise ValueError("must be a text, or a list of parts")
        return content


def template_messages(messages: Iterable[Message], template: str, backend: str) -> list[dict[str, Any]]:
    """Raises InvalidPayload for images: no backend takes them."""
    return [_template_message(place, message, template, backend) for place, message in enumerate(messages)]


def _template_message(place: int, message: Message, template: str, backend: str) -> dict[str, Any]:
    parts = message.content or []
    if any(part.type == "image_url" for part in parts):
        raise InvalidPayload(f"`messages.{place}.content` holds an image, and the {backend} backend takes only text")
    further = {name: value for name, value in (message.model_extra or {}).items() if value is not None}
    rendered = {"role": message.role, "content": "\n".join(part.text or "" for part in parts), **further}
    if message.role == "developer" and "developer" not in template:  # newer clients' name for the system
        rendered["role"] = "system"
    if message.tool_calls:
        rendered["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    return rendered


def _template_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": orjson.loads(call.function.arguments or "{}")}
    return {"id": call.id, "type": call.type, "function": function}
