"""Messages of a chat request, and their form for chat templates."""

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Annotated, Any, Literal

import orjson
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from lmi_core.backend import Backend
from lmi_core.payloads.exact_json import exact_json
from lmi_core.texts.chat_template import takes_parts
from lmi_handlers.fields.parameter_fields import RequestPart
from lmi_handlers.fields.tool_fields import BY_TYPE, CUSTOM, FUNCTION, input_as_arguments

logger = logging.getLogger(__name__)

NO_TEXT: dict[str, str | None] = {"type": "text", "text": None}  # dropped, as in vLLM
# From part type to the member with the text
TEXT_PARTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}


class ImageUrl(RequestPart):
    url: str = Field(description="The URL of the image, or the image itself in base64.")
    detail: str | None = None


def _as_image_url(given: object) -> object:
    return {"url": given} if isinstance(given, str) else given


class ContentPart(RequestPart):
    """A text or an image in a message; other members are passed to chat templates that read parts."""

    model_config = ConfigDict(extra="allow")

    type: Literal["text", "image_url"]
    text: str | None = None
    image_url: Annotated[
        ImageUrl | None, BeforeValidator(_as_image_url, json_schema_input_type=ImageUrl | str | None)
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _other_texts(cls, part: object) -> object:
        """Accept parts in the form of OpenAI's Responses (`output_text`, `input_image`), and `refusal`."""
        if isinstance(part, dict) and (member := TEXT_PARTS.get(str(part.get("type")))):
            return {"type": "text", "text": part.get(member)}
        if isinstance(part, dict) and part.get("type") == "input_image":
            return {**part, "type": "image_url"}
        return part

    @model_validator(mode="after")
    def _check_fields(self) -> "ContentPart":
        given = [name for name in ("text", "image_url") if getattr(self, name) is not None]
        if given != [self.type]:
            raise ValueError(f"must have `{self.type}` and no other content")
        return self


def json_text(value: object) -> str:
    """Return a value as JSON. Raise ValueError if it is nested more deeply than JSON is written."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as error:
        raise ValueError(f"cannot be taken: {error}") from None


def _as_json(given: object) -> object:
    if given is None:
        return ""
    return json_text(given) if isinstance(given, dict) else given


class FunctionCall(RequestPart):
    """A past call. Its arguments need not be a JSON object if a model wrote them: see `_arguments`."""

    name: str
    arguments: Annotated[str, BeforeValidator(_as_json, json_schema_input_type=str | dict[str, Any] | None)] = Field(
        "", description="A JSON object, as text."
    )


def _as_function(given: object) -> object:
    return "function" if given is None else given


class ToolCall(RequestPart):  # clients send back the `index` of a stream's chunk
    id: str | None = None
    type: Annotated[
        Literal["function"], BeforeValidator(_as_function, json_schema_input_type=Literal["function"] | None)
    ] = "function"
    function: FunctionCall


class CustomCall(RequestPart):
    name: str
    input: str


class CustomToolCall(RequestPart):
    """A past call of a tool whose input is plain text."""

    id: str | None = None
    type: Literal["custom"]
    custom: CustomCall

    @property
    def function(self) -> FunctionCall:
        """The call of the function that represents the tool in chat templates."""
        return FunctionCall(name=self.custom.name, arguments=input_as_arguments(self.custom.input))


AnyToolCall = Annotated[Annotated[ToolCall, Tag(FUNCTION)] | Annotated[CustomToolCall, Tag(CUSTOM)], BY_TYPE]


REASONING = (("reasoning", "reasoning_content"), ("reasoning_content", "reasoning"))  # templates read one or the other


ROLES = ("system", "developer", "user", "assistant", "tool", "function")  # the roles in OpenAI's API
RESULTS = ("tool", "function")
MAX_ROLE = 200  # characters


def _as_parts(content: object) -> object:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        parts = ({"type": "text", "text": part} if isinstance(part, str) else part for part in content)
        return [part for part in parts if part != NO_TEXT]
    return content


Parts = Annotated[list[ContentPart], BeforeValidator(_as_parts, json_schema_input_type=str | list[ContentPart | str])]


def _is_thinking(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "thinking"


def _thinking_text(part: dict[str, Any]) -> str:
    given = part.get("thinking")
    texts = (
        [each.get("text") if isinstance(each, dict) else each for each in given] if isinstance(given, list) else [given]
    )
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("must have a text, or a list of texts, as `thinking` of a part of this type")
    return "".join(str(text) for text in texts)


class Message(BaseModel):
    """A message of a chat; members other than these are passed to the chat template unchanged."""

    model_config = ConfigDict(extra="allow", strict=True)

    role: str = Field(
        min_length=1,
        max_length=MAX_ROLE,
        description=f"{', '.join(ROLES)}, or another role that the chat template writes.",
    )
    content: Parts | None = Field(
        None, validate_default=True, description="A string, or a list of parts, of which strings are texts."
    )
    tool_calls: list[AnyToolCall] | None = None
    function_call: FunctionCall | None = Field(None, description="The older form of `tool_calls`.")

    @model_validator(mode="before")
    @classmethod
    def _thinking_apart(cls, message: object) -> object:
        """Treat the assistant's parts of type `thinking`, from Mistral's API, as its reasoning."""
        if not isinstance(message, dict) or message.get("role") != "assistant":
            return message
        given = message.get("content")
        parts = given if isinstance(given, list) else []
        thoughts = [_thinking_text(part) for part in parts if _is_thinking(part)]
        if not thoughts:
            return message
        others = [part for part in parts if not _is_thinking(part)]
        return {"reasoning": "".join(thoughts), **message, "content": others}

    @field_validator("content")
    @classmethod
    def _check_content(cls, content: list[ContentPart] | None, info: ValidationInfo) -> list[ContentPart] | None:
        if content is None and info.data.get("role") in RESULTS:
            return []  # the result of a function that returns nothing
        if content is None and info.data.get("role") != "assistant":
            raise ValueError("must be a string, or a list of parts")
        return content

    @model_validator(mode="after")
    def _check_calls(self) -> "Message":
        if self.tool_calls and self.function_call is not None:
            raise ValueError("must have `tool_calls` or its older form `function_call`, but not both")
        return self

    @property
    def text(self) -> str:
        """The texts of all content parts, joined."""
        return "".join(part.text or "" for part in self.content or [])


# In a template that reads members of a certain part, at once or after it has set a variable to the part
CERTAIN_PART = re.compile(r"content(?:['\"]\])?\[\d+\]\s*(?:[.\[]|-?%})")
MEMBER = re.compile(r"[.'\"](\w+)")
CONTENTS = {"text", "image", "image_url", "input_image", "video", "video_url", "audio", "audio_url", "input_audio"}
# Members that say what a part is, and those that messages have too
OTHER_MEMBERS = CONTENTS | {"type", "role", "content", "name", "id", "tool_calls", "tool_call_id", *REASONING[0]}


@lru_cache(maxsize=16)
def _members_of_parts(template: str) -> frozenset[str]:
    """Return the names of what the template may read in parts, in addition to their type and content."""
    if not (takes_parts(template) or CERTAIN_PART.search(template)):
        return frozenset()
    return frozenset(MEMBER.findall(template)) - OTHER_MEMBERS


def template_messages(messages: Iterable[Message], template: str, backend: Backend[Any]) -> list[dict[str, Any]]:
    """Return the messages for the template.

    Content is a list of parts only if model and template accept images that way, or in messages with a further member
    that the template reads, such as TranslateGemma's `source_lang_code`.
    """
    texts, members = TextWriter(backend), _members_of_parts(template)
    in_parts = backend.max_images and takes_parts(template)

    def write(parts: Sequence[ContentPart]) -> str | list[dict[str, Any]]:
        further = [_given(part, members) for part in parts]
        if not in_parts and not any(further):
            return texts.write(parts)
        return [own | _own_content(part) for own, part in zip(further, parts, strict=True)]

    return [_template_message(message, template, write) for message in messages]


def _given(part: ContentPart, members: AbstractSet[str]) -> dict[str, Any]:
    """Return those of the members that the part has."""
    return {name: value for name, value in (part.model_extra or {}).items() if name in members and value is not None}


def _own_content(part: ContentPart) -> dict[str, str]:
    """Return a part for templates that insert image placeholders themselves."""
    return {"type": "image"} if part.text is None else {"type": "text", "text": part.text}


class TextWriter:
    """A writer of content as one text that starts with numbered image placeholders."""

    def __init__(self, backend: Backend[Any]) -> None:
        self._placeholder = backend.image_placeholder
        self._numbers = itertools.count(1)

    def write(self, parts: Sequence[ContentPart]) -> str:
        images, texts = list[str](), list[str]()
        for part in parts:
            if part.image_url is not None and (image := self._placeholder(next(self._numbers))) is not None:
                images.append(image)
            if part.text is not None:
                texts.append(part.text)
        return "\n".join(images + texts)


def _template_message(message: Message, template: str, write: Callable[..., Any]) -> dict[str, Any]:
    parts = message.content or []
    further = {name: value for name, value in (message.model_extra or {}).items() if value is not None}
    for name, other in REASONING:
        if name in further:
            further.setdefault(other, further[name])
    rendered = {"role": message.role, "content": write(parts), **further}
    if message.role == "developer" and "developer" not in template:  # the system role's name in newer clients
        rendered["role"] = "system"
    if message.tool_calls:
        rendered["tool_calls"] = [_template_call(call) for call in message.tool_calls]
    return rendered


def _template_call(call: AnyToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": _arguments(call.function)}
    return {"id": call.id, "type": "function", "function": function}


def _arguments(call: FunctionCall) -> dict[str, Any]:
    """Return the arguments as an object for templates; an empty one if they are not an object, as in vLLM.

    An error would end the conversation, because each later request contains the same message.
    """
    try:
        value = exact_json(call.arguments or "{}")
    except orjson.JSONDecodeError:
        value = None
    if isinstance(value, dict):
        return value
    logger.warning(
        "a past call of %r has arguments that are not a JSON object: the chat template gets {} instead", call.name
    )
    return {}
