"""Java's grammar of `.properties` files, as `java.util.Properties.load(Reader)` reads it."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from lmi_core.errors import ConfigurationError

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")  # str.splitlines would also split at form feeds and at U+2028
_ENTRY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(.{0,4})|(.))", re.DOTALL)
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{4}")
_NAMED_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Entry(NamedTuple):
    """An unescaped key and value, and the number of their first line."""

    key: str
    value: str
    line: int


def parse(text: str, source: str = "serving.properties") -> list[Entry]:
    """Return every entry in order, including repeated keys; errors call the text `source`."""
    return list(_entries(text.removeprefix("\ufeff"), source))


def _entries(text: str, source: str) -> Iterator[Entry]:
    for number, line in _logical_lines(text):
        match = _ENTRY.fullmatch(line)
        assert match is not None  # a final lone backslash is already removed
        try:
            yield Entry(_unescape(match[1]), _unescape(match[2]), number)
        except ValueError as error:
            raise ConfigurationError(f"{source}:{number}: {error}") from error


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without comments, with continued lines joined, each with the number of its first line."""
    start, joined = 0, ""
    for number, natural_line in enumerate(_LINE_END.split(text), 1):
        line = natural_line.lstrip(_BLANKS)
        if not joined:
            start = number
            if line.startswith(("#", "!")):
                continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        joined += line[:-1] if continues else line
        if joined and not continues:
            yield start, joined
            joined = ""
    if joined:
        yield start, joined


def _unescape(text: str) -> str:
    unescaped = _ESCAPE.sub(_character, text)
    try:
        # Two escapes may be the surrogate pair of one character, because Java's strings are UTF-16.
        return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError(f"a surrogate must be part of a pair. Given: {text}") from None


def _character(escape: re.Match[str]) -> str:
    code, character = escape.groups()
    if code is None:
        return _NAMED_CHARACTERS.get(character, character)
    if not _HEXADECIMAL.fullmatch(code):
        raise ValueError(f"\\u must be followed by four hexadecimal digits. Given: {escape[0]}")
    return chr(int(code, 16))
