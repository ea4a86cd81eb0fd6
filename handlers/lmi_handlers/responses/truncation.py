"""Truncation of conversations that exceed the model's context, with `truncation` set to auto."""

import logging
from bisect import bisect_left

from lmi_core.served_model import ServedModel
from lmi_handlers.chat.generation import chat_prompt
from lmi_handlers.responses.chat import ResponseChat

logger = logging.getLogger(__name__)

MAX_CHARACTERS = 8  # of a token, on average: a longer prompt is not tokenized to see that it does not fit
KEPT = ("system", "developer")  # roles whose messages stay


def may_need_truncation(chat: ResponseChat, prompt: str | list[int], model: ServedModel) -> bool:
    """Return whether the prompt may be too long; no token is shorter than a byte."""
    return isinstance(prompt, str) and len(prompt.encode(errors="replace")) > _room(chat, model)


def truncated(chat: ResponseChat, model: ServedModel, request_id: str) -> ResponseChat:
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
