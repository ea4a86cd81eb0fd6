"""How a variable or a key of DJLServing's containers is declared, and what becomes of it here."""

from dataclasses import dataclass
from enum import StrEnum

COMMAND_LINE = "command line"  # the source of what a person gave there


def begins(source: str) -> str:
    """How an error begins: what the command line gave needs no source."""
    return "" if source == COMMAND_LINE else f"{source}: "


class Fate(StrEnum):
    """What becomes of a variable or a key that is given."""

    HONOURED = "honoured"
    IGNORED = "no meaning here"  # a warning says why
    NOTED = "asks for nothing"  # set by a host or an image, not by the person who serves: only `lmi check` shows it
    REFUSED = "refused"  # what it asks for would silently be missing: the server does not start


@dataclass(frozen=True)
class Declared:
    """A variable or a key. `meaning` is what it does here, or the reason why it does nothing."""

    name: str
    fate: Fate
    meaning: str
    neutral: frozenset[str] = frozenset()  # values, in lower case, that ask for nothing whatever the fate
    options: tuple[str, ...] = ()  # the keys of serving.properties that it sets for every model
    factor: int = 1  # of the unit of those keys
    secret: bool = False  # no message shows its value

    def fate_of(self, value: str) -> Fate:
        neutral = self.fate is not Fate.HONOURED and value.strip().lower() in self.neutral
        return Fate.NOTED if neutral else self.fate

    def shown(self, value: str) -> str:
        return "***" if self.secret else value


def honoured(name: str, meaning: str, *options: str, factor: int = 1) -> Declared:
    return Declared(name, Fate.HONOURED, meaning, options=options, factor=factor)


def ignored(name: str, reason: str, *neutral: str, secret: bool = False) -> Declared:
    return Declared(name, Fate.IGNORED, reason, neutral=frozenset(neutral), secret=secret)


def noted(name: str, reason: str) -> Declared:
    return Declared(name, Fate.NOTED, reason)


def refused(name: str, reason: str, *neutral: str) -> Declared:
    return Declared(name, Fate.REFUSED, reason, neutral=frozenset(neutral))
