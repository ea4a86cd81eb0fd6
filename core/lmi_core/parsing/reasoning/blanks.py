"""Removal of blanks at the ends of streamed text."""


class Stripped:
    """A streaming strip of leading blanks and, if `end`, of trailing ones."""

    def __init__(self, *, start: bool, end: bool) -> None:
        self._begun = not start
        self._end = end
        self._blanks = ""  # held back: part of the text only if more follows

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
