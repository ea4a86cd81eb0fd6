"""Suggestions for misspelt names."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence that suggests the nearest known name, or "" where none is close or it is known itself."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6) if name not in names else []
    return f" Did you mean `{near[0]}`?" if near else ""
