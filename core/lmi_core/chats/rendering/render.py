"""A chat's text, as its template writes it."""

import threading
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lmi_core.calls.haste import NeedsTimeError, hasty_deadline
from lmi_core.chats.chat import Chat
from lmi_core.chats.rendering.budget import TemplateTooCostlyError, budget_for_a_chat

if TYPE_CHECKING:
    from jinja2 import Template

MAX_TEMPLATE = 64 * 1024  # characters; those of models have up to some thirty thousand
SHORT_TEMPLATE = 1000  # characters, which compile in a millisecond or two
CACHED_TEMPLATES = 64
CACHED_CHARACTERS = 8 * MAX_TEMPLATE  # of all of them; a program takes up to a hundred bytes for each
END = "CONTINUE_FINAL_MESSAGE_TAG "  # in place of the end of the last message, as transformers finds it


def render(chat: Chat, template: str, variables: Mapping[str, Any]) -> str:
    """Return the text that the template makes of a chat, with further variables that the chat's own override.

    Raise TemplateTooCostlyError where the template uses more than it may, or whatever it raises itself.
    """
    if not chat.messages:
        raise ValueError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    program = compiled(template)
    messages = deepcopy(chat.messages) if chat.continue_final_message else chat.messages
    continued = _mark_end(messages[-1], template) if chat.continue_final_message else None
    values: dict[str, Any] = {"tools": chat.tools, "documents": None, **variables}
    values |= {"messages": messages, "add_generation_prompt": chat.add_generation_prompt, **chat.template_arguments}
    with budget_for_a_chat():
        text = program.render(values)
    return text if continued is None else _up_to_end(text, continued)


def compiled(template: str) -> "Template":
    """Return the program of a template, which takes long to compile the first time."""
    known = _known.get(template)
    if known is None:
        if len(template) > MAX_TEMPLATE:
            raise TemplateTooCostlyError(f"it has {len(template)} characters; at most {MAX_TEMPLATE} are possible")
        if hasty_deadline() is not None and len(template) > SHORT_TEMPLATE:
            raise NeedsTimeError
        known = _compile(template)
    return known


_known: dict[str, "Template"] = {}
_changing = threading.Lock()  # chats are written in several threads


def _compile(template: str) -> "Template":
    environment = _environment()
    program: Template = environment.from_string(template)
    with _changing:
        while len(_known) >= CACHED_TEMPLATES or sum(map(len, [*_known, template])) > CACHED_CHARACTERS:
            del _known[next(iter(_known))]
        _known[template] = program
    return program


@lru_cache(maxsize=1)
def _environment() -> Any:
    from lmi_core.chats.rendering.environment import (
        BoundedEnvironment,
    )  # Jinja takes longer to import than all else here

    return BoundedEnvironment()


def _mark_end(message: dict[str, Any], template: str) -> str:
    """Put a mark behind the text of the last message, and return the text."""
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


def _up_to_end(text: str, continued: str) -> str:
    """Return the text up to the mark; a template that trims the message has trimmed the mark's blank too."""
    mark = END.strip()
    if continued.strip() not in text or mark not in text:
        raise ValueError(
            "continue_final_message is set but the final message does not appear in the chat after applying the "
            "chat template"
        )
    place = text.rindex(mark)
    return text[:place] if text[place : place + len(END)] == END else text[:place].rstrip()
