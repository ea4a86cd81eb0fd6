"""Blanks at the ends of a text that comes in parts."""


class Stripped:
    """Passes a text on without the blanks that it begins with, and, if `end`, without those that it ends with."""

    def __init__(self, *, start: bool, end: bool) -> None:
        self._begun = not start
        self._end = end
        self._blanks = ""  # which belong to the text only if more of it follows

    def push(self, text: str) -> str:
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        if not self._end:
            return text
        text = self._blanks + text
        kept = text.rstrip()
        self._blanks = text[len(kept) :]
        return kept
