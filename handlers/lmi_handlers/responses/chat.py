"""The chat in a request for a response."""

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import ConfigDict, SkipValidation

from lmi_core.generation.request import GenerationRequest
from lmi_core.payloads.payload import check_payload
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.fields.guides import Guide
from lmi_handlers.fields.passed import ChatFields
from lmi_handlers.fields.tool_fields import ToolNames
from lmi_handlers.responses.history import PlacedItem
from lmi_handlers.responses.items import MessageItem
from lmi_handlers.responses.messages import PlacedMessage, chat_messages
from lmi_handlers.responses.request import ResponsesRequest
from lmi_handlers.responses.tools import functions

NAMES = {"messages": "input", "max_completion_tokens": "max_output_tokens"}  # from the chat's field to the client's
TOOL_NAMES = ToolNames(allowed_tool="tool_choice.tools.{}.name")


class ResponseChat(ChatRequest):
    """A chat, with the paths of its messages in the request for a response."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    image_member: ClassVar[str] = ".image_url"
    messages_field: ClassVar[str] = NAMES["messages"]

    placed: SkipValidation[list[PlacedMessage]]
    text_guide: dict[str, Any] | None = None

    def part_path(self, message: int, part: int) -> str:
        return f"{self.placed[message].field}.{part}"

    @property
    def tool_names(self) -> ToolNames:
        return TOOL_NAMES

    def _guides(self) -> list[Guide]:
        return [Guide("guided_json", self.text_guide, "text.format"), *super()._guides()]

    def with_messages(self, messages: Sequence[PlacedMessage]) -> "ResponseChat":
        """Return the chat with other messages, and without its user, who is already logged."""
        own = {"placed": list(messages), "messages": [each.message for each in messages], "user": None}
        return self.model_copy(update=own)


def response_chat(payload: ResponsesRequest, items: Sequence[PlacedItem]) -> ResponseChat:
    """Return the chat. Raise InvalidPayload if a field is invalid in a chat."""
    messages = chat_messages(items, payload.instructions)
    shared = {name: getattr(payload, name) for name in ChatFields.model_fields}
    # The answer continues the last message if it is marked unfinished, as in vLLM.
    last = items[-1].item
    unfinished = isinstance(last, MessageItem) and last.role == "assistant" and last.status != "completed"
    own = {
        "messages": [each.message for each in messages],
        "placed": messages,
        "max_completion_tokens": payload.max_output_tokens,
        "logprobs": payload.logprobs,
        "top_logprobs": payload.top_logprobs,
        "tools": None
        if payload.tools is None
        else [tool.for_chat(namespace) for namespace, tool in functions(payload.tools)],
        "tool_choice": payload.tool_choice and payload.tool_choice.for_chat(),
        "reasoning_effort": payload.reasoning and payload.reasoning.effort,
        "continue_final_message": True if unfinished and last.status is not None else None,
        "text_guide": payload.text and payload.text.format and payload.text.format.json_guide,
    }
    given = {name: value for name, value in (shared | own).items() if value is not None}
    return check_payload(given, ResponseChat)


def own_names(request: GenerationRequest) -> dict[str, str]:
    """Return the client's names of the parameters."""
    return {parameter: NAMES.get(name, name) for parameter, name in request.names.items()}
