"""What an operation would make of a text or cost, told before it is done.

Some make far more of a little; others let no other thread run for long, as they look at every character in one go.
"""

import re
from collections.abc import Callable, Mapping, Sized
from typing import Any

from lmi_core.chats.rendering.budget import MAX_ITEMS, MAX_TEXT, TemplateTooCostlyError

MAX_WIDTH = 10_000
MAX_INDENT = 100
MAX_SPLIT = 1_000_000  # characters of a text that is split
MAX_COMPARED = 64_000_000  # characters of a text, times those looked for from its end or stripped from it
MAX_SORTED = 40_000  # items
MAX_TIME_FORMAT = 1000  # characters
# A width of five digits or more, one that is an argument of its own, or one within a replacement field of its own.
WIDE_PERCENT = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(?:\*|\d{5,})|%(?:\([^)]*\))?[-#0 +]*\d*\.(?:\*|\d{5,})")
WIDE_BRACES = re.compile(r"\d{5,}|\{[^{}]*:[^{}]*\{")


def check_growth(name: str, subject: object, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Raise TemplateTooCostlyError where the filter or method of that name would make too much of its subject."""
    values = (*arguments, *named.values())
    for each in values:
        if name in WIDTHS and isinstance(each, int) and each > WIDTHS[name]:
            raise TemplateTooCostlyError(f"`{name}` has the width {each}; at most {WIDTHS[name]} is possible")
    if name in FACTORS and FACTORS[name](subject, values) > MAX_TEXT:
        raise TemplateTooCostlyError(f"`{name}` makes a text of more than {MAX_TEXT} characters")
    if name in LISTING and isinstance(subject, str) and len(subject) > MAX_SPLIT:
        raise TemplateTooCostlyError(f"`{name}` splits a text of more than {MAX_SPLIT} characters")
    if name in SLOW and isinstance(subject, Sized) and len(subject) > SLOW[name]:
        raise TemplateTooCostlyError(
            f"`{name}` has {len(subject)} characters or items; at most {SLOW[name]} are possible"
        )
    if name in BACKWARDS and isinstance(subject, str | bytes):
        sought = max((len(each) for each in values if isinstance(each, str | bytes)), default=1)
        if len(subject) * sought > MAX_COMPARED:
            raise TemplateTooCostlyError(f"`{name}` looks for {sought} characters in {len(subject)}")


def check_time_format(text: str) -> None:
    """Raise TemplateTooCostlyError where the format of a time is long, or has a huge width."""
    if len(text) > MAX_TIME_FORMAT:
        raise TemplateTooCostlyError(f"the format of a time has more than {MAX_TIME_FORMAT} characters")
    if WIDE_PERCENT.search(text):
        raise TemplateTooCostlyError(f"a format has a width of more than {MAX_WIDTH}")


def _replaced(subject: object, values: tuple[Any, ...]) -> int:
    text, longest = str(subject), max((_length(each) for each in values[1:]), default=0)
    return len(text) + _count(text, values[0] if values else "") * longest


def _joined(subject: object, values: tuple[Any, ...]) -> int:
    """Return the length of the separators: the method's subject is one, and the filter's argument."""
    separator, items = (values[0] if values else "", subject)
    if isinstance(subject, str) and not isinstance(separator, str):
        separator, items = subject, separator
    return _length(separator) * (len(items) if isinstance(items, Sized) else MAX_ITEMS)


def _indented(subject: object, values: tuple[Any, ...]) -> int:
    text = str(subject)
    return len(text) + (text.count("\n") + 1) * max((_length(each) for each in values), default=4)


def _wrapped(subject: object, values: tuple[Any, ...]) -> int:
    return len(str(subject)) * max((_length(each) for each in values if isinstance(each, str)), default=1)


def _translated(subject: object, values: tuple[Any, ...]) -> int:
    table = values[0] if values and isinstance(values[0], Mapping) else {}
    return len(str(subject)) * max((_length(each) for each in table.values()), default=1)


def _formatted(subject: object, values: tuple[Any, ...]) -> int:
    text = str(subject)
    wide = WIDE_PERCENT.search(text) or WIDE_BRACES.search(text)
    return MAX_TEXT + 1 if wide else len(text) * max((_length(each) for each in values), default=1)


def _tabs(subject: object, values: tuple[Any, ...]) -> int:
    text = str(subject)
    return len(text) + text.count("\t") * max((each for each in values if isinstance(each, int)), default=8)


def _length(value: object) -> int:
    return len(value) if isinstance(value, str) else value if type(value) is int else 1


def _count(text: str, old: object) -> int:
    return text.count(old) if isinstance(old, str) else len(text) + 1


WIDTHS = dict.fromkeys(("batch", "center", "expandtabs", "ljust", "rjust", "slice", "wordwrap", "zfill"), MAX_WIDTH)
WIDTHS |= dict.fromkeys(("indent", "tojson", "round"), MAX_INDENT)
FACTORS: dict[str, Callable[[object, tuple[Any, ...]], int]] = {
    "expandtabs": _tabs, "format": _formatted, "format_map": _formatted, "indent": _indented, "join": _joined,
    "replace": _replaced, "translate": _translated, "wordwrap": _wrapped,
}  # fmt: skip
LISTING = frozenset({"list", "rsplit", "slice", "batch", "sort", "split", "splitlines", "unique"})
# Characters or items that take some ten milliseconds.
SLOW = dict.fromkeys(("capitalize", "casefold", "lower", "swapcase", "upper"), 2_000_000)
SLOW |= {
    "encode": 500_000,
    "sort": MAX_SORTED,
    "title": 300_000,
    "urlize": 500_000,
    "wordcount": 400_000,
    "wordwrap": 100_000,
}
BACKWARDS = frozenset({"lstrip", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "strip", "trim"})
