"""Tables of the variables and keys of containers, for docs/how_to/container.md."""

from collections.abc import Iterable

from lmi_core.configuration.properties import environment_variable
from lmi_handlers.container.declarations import Declared
from lmi_handlers.container.server_keys import SERVER_KEYS
from lmi_handlers.container.variables import VARIABLES
from tools.docs import marked_tables


def tables() -> dict[str, str]:
    """Return each table of Markdown by the name that marks its place in a page."""
    return {"keys": _table(("Key", "Variable"), SERVER_KEYS), "variables": _table(("Variable",), VARIABLES)}


def with_tables(text: str) -> str:
    """Return the page with each table put between its marks."""
    return marked_tables.with_tables(text, tables())


def _table(names: tuple[str, ...], declared: Iterable[Declared]) -> str:
    heading = (*names, "Treatment", "Meaning, or reason")
    return marked_tables.table(heading, (_row(each, len(names)) for each in declared))


def _row(each: Declared, names: int) -> list[str]:
    cells = [f"`{each.name}`", f"`{environment_variable(each.name)}`"][:names]
    options = f" Sets {', '.join(f'`{option}`' for option in each.options)}." if each.options else ""
    values = ", ".join(f"`{value}`" for value in sorted(each.neutral))
    neutral = f" Accepted without a warning: {values}." if values else ""
    return [*cells, each.fate.value, _sentence(each.meaning) + options + neutral]


def _sentence(text: str) -> str:
    """Return the text with a full stop and, unless it begins with a key or a variable, a capital letter."""
    word = text.partition(" ")[0].rstrip(",:")
    begun = text if set(word) & set("./_-`") else text[0].upper() + text[1:]
    return begun if begun.endswith(".") else f"{begun}."
