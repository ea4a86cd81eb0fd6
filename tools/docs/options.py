"""The text of docs/reference/options.md, from the declared keys."""

from collections.abc import Iterable, Mapping

from lmi_core.configuration.properties import DeclaredKey, Properties
from lmi_handlers.cli.report import option_sections

_HEADING = """\
# Options

Every key of `serving.properties`, and the environment variables that set it; the file overrides them.
`lmi check DIR` shows each effective value and where it came from.

An invalid value of a key below is an error. Any other key is unknown: it is ignored, with a warning that suggests the
key that was probably meant or says why the key has no effect ([coming_from_djl.md](../how_to/coming_from_djl.md) lists
DJLServing's keys). With `--strict`, `lmi serve` and `lmi check` make warnings errors.
"""

_TABLE_HEADING = """\
| Key | Type | Default | Environment | Meaning |
|---|---|---|---|---|
"""


def document(types: Mapping[str, type[Properties]]) -> str:
    """Return the page: each key with its type, its default, its variables and its meaning."""
    return _HEADING + "".join(
        f"\n## {section}\n\n{_TABLE_HEADING}" + "".join(_row(key) for key in keys)
        for section, keys in option_sections(types)
    )


def _row(key: DeclaredKey) -> str:
    keys = _code([key.key, *key.aliases])
    cells = [keys, key.type, _code([key.default]), _code(key.environment), key.help]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _code(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts if text)
