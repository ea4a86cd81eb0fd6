"""Suggestions for misspelt names and values."""

import difflib
import re
from collections.abc import Iterable

_QUOTED = re.compile(r"""(["'`]).*\1""", re.DOTALL)
_WITH_COMMENT = re.compile(r"\s[#!]|\s//")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the nearest known name; "" if none is close, or if the name is known."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6) if name not in names else []
    return f" Did you mean `{near[0]}`?" if near else ""


def stray_text_hint(value: str) -> str:
    """Return a sentence about text in a properties file that was added to a value by mistake, or ""."""
    if _QUOTED.fullmatch(value):
        return " Quotes are not removed: they are part of the value."
    if _WITH_COMMENT.search(value):
        return " Comments must be on separate lines: this one is part of the value."
    return ""
