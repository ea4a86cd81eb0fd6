"""The expanded size of regular expressions."""

import re

# An escape, a class, a bounded repetition, a group, or any other repeatable character.
PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*+\]?|\{(?P<least>\d*),?(?P<most>\d*)\}|[()|*+?]|[^\\\[()|*+?]", re.DOTALL
)
MAX_DIGITS = 9  # of a repetition count; longer counts have the same effect
MAX_SIZE = 10**12  # larger sizes are not distinguished


def expanded_size(pattern: str) -> int:
    """Return the number of characters and classes of a pattern with its bounded repetitions expanded."""
    outer: list[int] = []  # size of the text before each open group
    size = latest = 0  # of this group, and of its last part, which a repetition repeats
    for part in PART.finditer(pattern):
        text = part[0]
        if text == "(":
            outer.append(size)
            size = latest = 0
        elif text == ")":
            latest = size
            size = min(size + (outer.pop() if outer else 0), MAX_SIZE)
        elif text == "|":
            latest = 0
        elif part["least"] or part["most"]:
            repeated = latest * _repetitions(part)
            size = min(size - latest + repeated, MAX_SIZE)
            latest = min(repeated, MAX_SIZE)
        elif text not in ("*", "+", "?"):
            size, latest = size + 1, 1
    return size


def _repetitions(part: re.Match[str]) -> int:
    """Return the larger number in braces; without an upper bound, the lower one."""
    digits = part["most"] or part["least"]
    return int(digits[:MAX_DIGITS]) if len(digits) <= MAX_DIGITS else 10**MAX_DIGITS
