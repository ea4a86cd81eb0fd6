"""Incremental parsing of one JSON object."""

from typing import Any

import orjson

ENDS_OF_A_VALUE = ('"', "}", "]")


class JsonMembers:
    """A character-by-character parser that separates members' values from the text around them."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}  # values of complete members
        self.closed = False
        self.broken = False  # the text is not a JSON object
        self.member: str | None = None  # the member whose value is being read
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._part: list[str] = []  # the characters read so far of a name or a value

    @property
    def container_ended(self) -> bool:
        """Whether the last character closed a member's object or list."""
        return (
            self._depth == 1 and not self._in_string and self.member is not None and self._part[-1:] in (["}"], ["]"])
        )

    def push(self, character: str) -> str:
        """Return the character if it belongs to a value, otherwise ""."""
        if self._depth == 0:
            if character == "{" and not self.closed:
                self._depth = 1
            elif not character.isspace():
                self.broken = True
            return ""
        if not self._in_string:
            if self._depth == 1 and (character in ":,}" or character.isspace()):
                self._end_part(character)
                return ""
            if self._depth == 1 and self._part and self._part[-1] in ENDS_OF_A_VALUE:
                self.broken = True
            self._depth += (character in "{[") - (character in "}]")
        self._follow_string(character)
        self._part.append(character)
        self.broken |= self._depth == 0
        return character if self.member is not None else ""

    def _follow_string(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = self._in_string
        elif character == '"':
            self._in_string = not self._in_string

    def _end_part(self, character: str) -> None:
        if character == ":" and self.member is None:
            self.member = str(self._value())
        elif character in ",}":
            self._end_member()
            self.closed = character == "}"
            self._depth -= self.closed
        elif character == ":":
            self.broken = True

    def _end_member(self) -> None:
        if self.member is not None:
            self.values[self.member] = self._value()
            self.member = None
        elif self._part or self.values:
            self.broken = True

    def _value(self) -> Any:
        part, self._part = "".join(self._part), []
        try:
            return orjson.loads(part)
        except orjson.JSONDecodeError:
            self.broken = True
            return None
