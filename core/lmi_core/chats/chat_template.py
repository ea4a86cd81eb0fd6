"""`option.chat_template`: a chat template that takes the place of the model's own."""

import re
from pathlib import Path

from lmi_core.errors import ConfigurationError, InvalidPayload
from lmi_core.tokenizer import Tokenizer

LOOP_OVER_CONTENT = re.compile(r"{%-?\s*for\s[^%]*?\sin\s[^%]*\bcontent\b")

REFUSED_BY_TEMPLATE = "`messages` are refused by the chat template: "


def read_chat_template(option: str | None, directory: Path) -> str | None:
    """The option is the template itself, or a file's path from the model directory. Raises ConfigurationError."""
    if option is None or "{{" in option or "{%" in option:
        return option
    path = directory / option
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        needed = f"a Jinja template, or a file with one in {directory}"
        raise ConfigurationError(f"option.chat_template must be {needed}. Given: {option} ({error})") from None


def find_chat_template(configured: str | None, tokenizer: Tokenizer, with_tools: bool) -> str:
    """Raises InvalidPayload where there is none."""
    template = configured or tokenizer.chat_template(with_tools)
    if template is None:
        raise InvalidPayload(
            "`messages` need a chat template, and this model's tokenizer has none: set option.chat_template to a "
            "Jinja template, or to a file with one in the model directory"
        )
    return template


def takes_parts(template: str) -> bool:
    """Whether contents may be lists of parts, as templates of models that take images have it, and not only texts."""
    return LOOP_OVER_CONTENT.search(template) is not None
