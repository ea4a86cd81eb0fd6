"""Tables of the declared variables and keys, updated in a page: `python -m lmi_handlers.container.document FILE`."""

import sys
from collections.abc import Iterable
from pathlib import Path

from lmi_core.configuration.properties import environment_variable
from lmi_handlers import marked_tables
from lmi_handlers.container.declarations import Declared
from lmi_handlers.container.server_keys import SERVER_KEYS
from lmi_handlers.container.variables import VARIABLES


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


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(with_tables(document.read_text()))
