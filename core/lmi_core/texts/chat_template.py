"""A model's chat template, its own or `option.chat_template`: chats rendered by it, and the roles that it drops."""

import importlib
import re
import sys
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from lmi_core.deadlines.bounded import Bounded, NeedsTimeError, on_event_loop
from lmi_core.errors import ConfigurationError, GenerationFailed, InvalidPayload
from lmi_core.forks.forked_function import ForkedFunction
from lmi_core.generation.chat import Chat
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.texts.tokenizer_files import TEMPLATE, has_tokenizer

ROLE_MEMBER = "role"  # the member of messages that templates read
_END_OF_TAG, _BEGIN_OF_TAG = re.compile("[%}]}"), re.compile("{[%{]")
LOOP_OVER_CONTENT = re.compile(r"{%-?\s*for\s[^%]*?\sin\s[^%]*\bcontent\b")

ENVIRONMENT = "lmi_core.texts.template_environment"
MAX_CODES = 16
MAX_KEPT = 1_000_000  # characters of a template plus bytes of its code; larger ones are compiled every time
END = "CONTINUE_FINAL_MESSAGE_TAG "  # marks the end of the last message, as in transformers


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


def render(chat: Chat, template: str, variables: Mapping[str, Any]) -> str:
    """Render a chat with the template; the chat's variables override further ones.

    A client's template is always rendered in a child process. Raise NeedsTimeError on the event loop,
    CallTooCostlyError if the template takes too long, or the template's own exceptions.
    """
    if not chat.messages:
        raise ValueError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    messages = deepcopy(chat.messages) if chat.continue_final_message else chat.messages
    continued = _mark_end(messages[-1], template) if chat.continue_final_message else None
    values: dict[str, Any] = {"tools": chat.tools, "documents": None, **variables}
    values |= {"messages": messages, "add_generation_prompt": chat.add_generation_prompt, **chat.template_arguments}
    if chat.template_of_client:
        text = _RENDERING.run_apart(0, template, values)
    else:
        _import_jinja()
        text = _RENDERING.run(0, template, values)
    return text if continued is None else _cut_at_mark(text, continued)


def _import_jinja() -> None:
    """Import Jinja, but not in a helper thread, which could be interrupted during the import.

    Raise NeedsTimeError on the event loop.
    """
    if ENVIRONMENT not in sys.modules:
        if on_event_loop():
            raise NeedsTimeError
        importlib.import_module(ENVIRONMENT)


def _render(template: str, variables: Mapping[str, Any]) -> str:
    # Importing Jinja takes longer than all other imports here
    from lmi_core.texts.template_environment import compile_template

    return compile_template(template).render(variables)


def _render_apart(seconds: float, template: str, variables: Mapping[str, Any]) -> str:
    text, code = _FORKED.call(seconds, template, variables, _codes.get(template))
    if code is not None and len(template) + len(code) <= MAX_KEPT:
        if len(_codes) >= MAX_CODES:
            _codes.clear()
        _codes[template] = code
    return str(text)


_FORKED = ForkedFunction(f"{ENVIRONMENT}:renderer")
_RENDERING = Bounded(_render, _render_apart)
_codes: dict[str, bytes] = {}  # the most recent templates rendered in forks


def _mark_end(message: dict[str, Any], template: str) -> str:
    """Append a mark to the text of the last message, and return the text."""
    content = message.get("content")
    if content is None:
        raise ValueError('continue_final_message is set but the final message has no "content" to continue!')
    if "content" not in template:
        raise ValueError("continue_final_message is set but the chat template has no message's content")
    if isinstance(content, str):
        message["content"] = content + END
        return content
    for part in reversed(content):
        if isinstance(part, dict) and isinstance(text := part.get("text"), str):
            part["text"] = text + END
            return text
    raise ValueError("continue_final_message is set but the final message has no text to continue")


def _cut_at_mark(text: str, continued: str) -> str:
    """Return the text up to the mark; if the template trims the message, it has trimmed the mark's space too."""
    mark = END.strip()
    if continued.strip() not in text or mark not in text:
        raise ValueError(
            "continue_final_message is set but the final message does not appear in the chat after applying the "
            "chat template"
        )
    place = text.rindex(mark)
    return text[:place] if text[place : place + len(END)] == END else text[:place].rstrip()


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
