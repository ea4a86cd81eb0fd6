"""A model's chat template, its own or `option.chat_template`, and the non-standard roles that it drops."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from lmi_core.deadlines.bounded import NeedsTimeError
from lmi_core.errors import ConfigurationError, GenerationFailed, InvalidPayload
from lmi_core.generation.chat import Chat
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.texts.rendering.render import render
from lmi_core.texts.tokenizer_files import TEMPLATE, has_tokenizer

ROLE_MEMBER = "role"  # the member of messages that templates read
_END_OF_TAG, _BEGIN_OF_TAG = re.compile("[%}]}"), re.compile("{[%{]")
LOOP_OVER_CONTENT = re.compile(r"{%-?\s*for\s[^%]*?\sin\s[^%]*\bcontent\b")


class RefusedByTemplate(InvalidPayload):
    """A chat template refuses a chat; has the reason, and the name of the dialect's messages field."""

    def __init__(self, reason: str, field: str | None = None) -> None:
        messages = "the messages" if field is None else f"`{field}`"
        super().__init__(f"{messages} are refused by the chat template: {reason}")
        self.reason = reason


def render_chat(chat: Chat, template: str, variables: Mapping[str, Any]) -> str:
    """Render a chat for `Tokenizer.render_chat`; `variables` are the template's, such as `bos_token`.

    Raise InvalidPayload if the template refuses the chat.
    """
    try:
        return render(chat, template, variables)
    except (NeedsTimeError, GenerationFailed):
        raise
    except Exception as error:  # the template's own refusal, or any error from unexpected values
        raise RefusedByTemplate(str(error) or type(error).__name__) from None


def read_chat_template(option: str | None, directory: Path) -> str | None:
    """Return the template in `option`, or in the file that it names relative to `directory`.

    Without the option, return the directory's template, unless there is a tokenizer, which loads it itself. Raise
    ConfigurationError if the file cannot be read.
    """
    if option is None:
        if not (directory / TEMPLATE).is_file() or has_tokenizer(directory):
            return None
        option = TEMPLATE
    if "{{" in option or "{%" in option:
        return option
    path = directory / option
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        needed = f"a Jinja template, or a file with one in {directory}"
        raise ConfigurationError(f"option.chat_template must be {needed}. Given: {option} ({error})") from None


def find_chat_template(configured: str | None, tokenizer: Tokenizer, with_tools: bool, field: str) -> str:
    """Return the configured template, or the tokenizer's own.

    Raise InvalidPayload, with the name of the messages field, if the model has none.
    """
    template = configured or tokenizer.chat_template(with_tools)
    if template is None:
        raise InvalidPayload(
            f"`{field}` need a chat template, and this model's tokenizer has none: set option.chat_template to a "
            "Jinja template, or to a file with one in the model directory"
        )
    return template


def takes_parts(template: str) -> bool:
    """Return whether the template accepts contents as lists of parts, like templates for images."""
    return LOOP_OVER_CONTENT.search(template) is not None


def first_dropped_message(chat: Chat, template: str, tokenizer: Tokenizer, usual: Collection[str]) -> int | None:
    """Return the index of the first message with an unusual role that the template drops.

    A role that the template compares is supported, and may be a switch without text. For others, the chat is rendered
    again with marks in their messages. Raise InvalidPayload if the template refuses the marks.
    """
    asked = [index for index, message in enumerate(chat.messages) if message[ROLE_MEMBER] not in usual]
    if not asked:
        return None
    knows = {role: _mentions(template, role) for role in {chat.messages[index][ROLE_MEMBER] for index in asked}}
    marks = {index: f"role{token_hex(16)}" for index in asked if not knows[chat.messages[index][ROLE_MEMBER]]}
    if not marks:
        return None
    messages = [
        _add_mark(message, marks[index]) if index in marks else message for index, message in enumerate(chat.messages)
    ]
    text = tokenizer.render_chat(replace(chat, messages=messages), template)
    return next((index for index, mark in marks.items() if mark not in text), None)


def _mentions(template: str, role: str) -> bool:
    """Return whether a tag of the template contains both `role` and the role as a string."""
    quoted = re.compile(rf"""(?<![\w)\]]\[)(?<!get\()(['"]){re.escape(role)}\1""")
    tags = (_BEGIN_OF_TAG.split(piece)[-1] for piece in _END_OF_TAG.split(template))
    return any(ROLE_MEMBER in tag and quoted.search(tag) for tag in tags)


def _add_mark(message: dict[str, Any], mark: str) -> dict[str, Any]:
    content = message.get("content") or ""
    added: Any = content + mark if isinstance(content, str) else [*content, {"type": "text", "text": mark}]
    return {**message, "content": added}
