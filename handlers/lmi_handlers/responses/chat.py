"""The chat in a request for a response, and its truncation where it exceeds the model's context."""

import logging
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import ConfigDict, SkipValidation

from lmi_core.generation.request import GenerationRequest
from lmi_core.payloads.payload import check_payload
from lmi_core.served_model import ServedModel
from lmi_handlers.chat.generation import chat_prompt
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.fields.guides import Guide
from lmi_handlers.fields.offered_tools import check_own_tools
from lmi_handlers.fields.passed import ChatFields
from lmi_handlers.fields.tool_fields import ToolNames
from lmi_handlers.responses.history import PlacedItem, PlacedMessage, chat_messages
from lmi_handlers.responses.items import MessageItem, offered_tools
from lmi_handlers.responses.request import ResponsesRequest
from lmi_handlers.responses.tools import TYPES, chat_tools

NAMES = {"messages": "input", "max_completion_tokens": "max_output_tokens"}  # from the chat's field to the client's
TOOL_NAMES = ToolNames(allowed_tool="tool_choice.tools.{}.name")
logger = logging.getLogger(__name__)
MAX_CHARACTERS = 8  # of a token, on average: a longer prompt is not tokenized to see that it does not fit
KEPT = ("system", "developer")  # roles whose messages stay


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
        """Return the chat with other messages."""
        return self.model_copy(update={"placed": list(messages), "messages": [each.message for each in messages]})


def response_chat(payload: ResponsesRequest, items: Sequence[PlacedItem]) -> ResponseChat:
    """Return the chat. Raise InvalidPayload if a field is invalid in a chat."""
    tools = chat_tools(offered_tools(payload.tools, (item for item, _ in items)))
    if not tools:
        check_own_tools(payload.tool_lists, TYPES)
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
        "tools": tools,
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


def may_need_truncation(chat: ResponseChat, prompt: str | list[int], model: ServedModel) -> bool:
    """Return whether the prompt may be too long; no token is shorter than a byte."""
    return isinstance(prompt, str) and len(prompt.encode(errors="replace")) > _room(chat, model)


def truncate(chat: ResponseChat, model: ServedModel, request_id: str) -> ResponseChat:
    """Return the chat without its oldest turns that do not fit with `max_output_tokens`.

    System messages and the last turn stay; if the last turn alone is too long, the backend raises the error.
    """
    room = _room(chat, model)
    if _fits(chat, model, room):
        return chat
    # The first of consecutive user messages starts a turn.
    roles = [placed.message.role for placed in chat.placed]
    starts = [
        index
        for index, role in enumerate(roles)
        if role == "user" and next((each for each in roles[:index][::-1] if each not in KEPT), None) != "user"
    ][1:]
    if not starts:
        return chat
    needed = bisect_left(starts[:-1], True, key=lambda start: _fits(_from(chat, start), model, room))
    logger.info("request %s: truncation omitted %d of %d turns", request_id, needed + 1, len(starts) + 1)
    return _from(chat, starts[needed])


def _room(chat: ResponseChat, model: ServedModel) -> int:
    return model.backend.max_length - (chat.max_completion_tokens or chat.max_tokens or 1)


def _fits(chat: ResponseChat, model: ServedModel, room: int) -> bool:
    prompt = chat_prompt(chat, model)
    if len(prompt) > room * MAX_CHARACTERS:
        return False
    return len(model.backend.tokenizer.encode(prompt, bool(chat.add_special_tokens))) <= room


def _from(chat: ResponseChat, start: int) -> ResponseChat:
    kept = [each for index, each in enumerate(chat.placed) if index >= start or each.message.role in KEPT]
    return chat.with_messages(kept)
