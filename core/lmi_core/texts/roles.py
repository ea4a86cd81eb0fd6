"""Roles outside of the APIs: some templates support them, some write any role, and some silently drop them."""

import re
from collections.abc import Collection
from dataclasses import replace
from secrets import token_hex
from typing import Any

from lmi_core.generation.chat import Chat
from lmi_core.generation.tokenizer import Tokenizer

ROLE_MEMBER = "role"  # the member of messages that templates read
_END_OF_TAG, _BEGIN_OF_TAG = re.compile("[%}]}"), re.compile("{[%{]")


def first_left_out(chat: Chat, template: str, tokenizer: Tokenizer, usual: Collection[str]) -> int | None:
    """Return the index of the first message with an unusual role that the template drops.

    A role that the template compares is supported, and may be a switch without text. For others, the chat is rendered
    again with marks in their messages. Raise InvalidPayload if the template refuses the marks.
    """
    asked = [index for index, message in enumerate(chat.messages) if message[ROLE_MEMBER] not in usual]
    if not asked:
        return None
    knows = {role: _knows(template, role) for role in {chat.messages[index][ROLE_MEMBER] for index in asked}}
    marks = {index: f"role{token_hex(16)}" for index in asked if not knows[chat.messages[index][ROLE_MEMBER]]}
    if not marks:
        return None
    messages = [
        _marked(message, marks[index]) if index in marks else message for index, message in enumerate(chat.messages)
    ]
    text = tokenizer.render_chat(replace(chat, messages=messages), template)
    return next((index for index, mark in marks.items() if mark not in text), None)


def _knows(template: str, role: str) -> bool:
    """Return whether a tag of the template contains both `role` and the role as a string."""
    quoted = re.compile(rf"""(?<![\w)\]]\[)(?<!get\()(['"]){re.escape(role)}\1""")
    tags = (_BEGIN_OF_TAG.split(piece)[-1] for piece in _END_OF_TAG.split(template))
    return any(ROLE_MEMBER in tag and quoted.search(tag) for tag in tags)


def _marked(message: dict[str, Any], mark: str) -> dict[str, Any]:
    content = message.get("content") or ""
    added: Any = content + mark if isinstance(content, str) else [*content, {"type": "text", "text": mark}]
    return {**message, "content": added}
