"""Documentation of the declared keys: an example `serving.properties`, and the tables of docs/reference/options.md."""

from collections.abc import Iterable, Iterator, Mapping

from lmi_core.configuration.properties import DeclaredKey, Properties, declared

_EXAMPLE_HEADING = """\
# Every key with its default. Remove the # in front of a key to set it.
# Other option.* keys that are arguments of the chosen engine are passed through to it.
"""

_MARKDOWN_HEADING = """\
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


def example(types: Mapping[str, type[Properties]]) -> str:
    """Return a `serving.properties` with every key commented out at its default."""
    return _EXAMPLE_HEADING + "".join(
        f"\n# == {section} ==\n" + "".join(f"\n# {key.help}\n#{key.key}={key.default}\n" for key in keys)
        for section, keys in _sections(types)
    )


def markdown(types: Mapping[str, type[Properties]]) -> str:
    return _MARKDOWN_HEADING + "".join(
        f"\n## {section}\n\n{_TABLE_HEADING}" + "".join(_row(key) for key in keys) for section, keys in _sections(types)
    )


def _sections(types: Mapping[str, type[Properties]]) -> Iterator[tuple[str, list[DeclaredKey]]]:
    """Yield the keys that each type adds or changes; unchanged inherited ones appear only with its base."""
    for section, properties_type in types.items():
        bases = [base for base in types.values() if base is not properties_type and issubclass(properties_type, base)]
        inherited = {key for base in bases for key in declared(base)}
        if keys := [key for key in declared(properties_type) if key not in inherited]:
            yield section, keys


def _row(key: DeclaredKey) -> str:
    keys = _code([key.key, *key.aliases])
    cells = [keys, key.type, _code([key.default]), _code(key.environment), key.help]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _code(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts if text)
