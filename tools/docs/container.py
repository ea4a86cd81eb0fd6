"""Tables of the variables and keys of containers, for docs/how_to/container.md."""

from collections.abc import Iterable

from lmi_handlers.container.declarations import Declared
from lmi_handlers.container.server_keys import SERVER_KEYS
from lmi_handlers.container.variables import VARIABLES
from tools.docs import marked_tables


def tables() -> dict[str, str]:
    """Return each table of Markdown by the name that marks its place in a page."""
    return {"keys": _table("Key", SERVER_KEYS), "variables": _table("Variable", VARIABLES)}


def with_tables(text: str) -> str:
    """Return the page with each table put between its marks."""
    return marked_tables.with_tables(text, tables())


def _table(name: str, declared: Iterable[Declared]) -> str:
    """Return a table with one row for all names of the same treatment and meaning, at the place of the first."""
    names: dict[tuple[str, str], list[str]] = {}
    for each in declared:
        names.setdefault((each.fate.value, _meaning(each)), []).append(f"`{each.name}`")
    rows = ((", ".join(named), *cells) for cells, named in names.items())
    return marked_tables.table((name, "Treatment", "Meaning, or reason"), rows)


def _meaning(each: Declared) -> str:
    options = f" Sets {', '.join(f'`{option}`' for option in each.options)}." if each.options else ""
    values = ", ".join(f"`{value}`" for value in sorted(each.neutral))
    neutral = f" Accepted without a warning: {values}." if values else ""
    return _sentence(each.meaning) + options + neutral


def _sentence(text: str) -> str:
    """Return the text with a full stop and, unless it begins with a key or a variable, a capital letter."""
    word = text.partition(" ")[0].rstrip(",:")
    begun = text if set(word) & set("./_-`") else text[0].upper() + text[1:]
    return begun if begun.endswith(".") else f"{begun}."
