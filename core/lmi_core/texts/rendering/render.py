"""The text of a chat, rendered by its template."""

import importlib
import sys
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from lmi_core.deadlines.bounded import Bounded, NeedsTimeError, on_event_loop
from lmi_core.forks.forked_function import ForkedFunction
from lmi_core.generation.chat import Chat

ENVIRONMENT = "lmi_core.texts.rendering.environment"
MAX_CODES = 16
MAX_KEPT = 1_000_000  # characters of a template plus bytes of its code; larger ones are compiled every time
END = "CONTINUE_FINAL_MESSAGE_TAG "  # marks the end of the last message, as in transformers


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
    from lmi_core.texts.rendering.environment import compile_template

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
