"""Declarations of the variables and keys of DJLServing's containers, with their treatment."""

from dataclasses import dataclass
from enum import StrEnum

COMMAND_LINE = "command line"  # the source of values given on the command line


def begins(source: str) -> str:
    """Return the start of an error message; for the command line, an empty one."""
    return "" if source == COMMAND_LINE else f"{source}: "


class Fate(StrEnum):
    """The treatment of a variable or a key that is set."""

    HONOURED = "honoured"
    IGNORED = "ignored"  # a warning gives the reason
    NOTED = "informational"  # set by a host or an image instead of the user; only `lmi check` shows it
    REFUSED = "refused"  # the server does not start, because it cannot do this


@dataclass(frozen=True)
class Declared:
    """A variable or a key; `meaning` is its effect, or the reason why it has none."""

    name: str
    fate: Fate
    meaning: str
    neutral: frozenset[str] = frozenset()  # values without effect, in lower case
    options: tuple[str, ...] = ()  # keys of serving.properties that it sets for all models
    factor: int = 1  # converts its unit to the unit of those keys
    secret: bool = False  # messages hide its value

    def fate_of(self, value: str) -> Fate:
        neutral = self.fate is not Fate.HONOURED and value.strip().lower() in self.neutral
        return Fate.NOTED if neutral else self.fate

    def display(self, value: str) -> str:
        return "***" if self.secret else value


def honoured(name: str, meaning: str, *options: str, factor: int = 1, secret: bool = False) -> Declared:
    return Declared(name, Fate.HONOURED, meaning, options=options, factor=factor, secret=secret)


def ignored(name: str, reason: str, *neutral: str, secret: bool = False) -> Declared:
    return Declared(name, Fate.IGNORED, reason, neutral=frozenset(neutral), secret=secret)


def noted(name: str, reason: str) -> Declared:
    return Declared(name, Fate.NOTED, reason)


def refused(name: str, reason: str, *neutral: str) -> Declared:
    return Declared(name, Fate.REFUSED, reason, neutral=frozenset(neutral))
