"""Replacements for requested features that this host lacks."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Substitution:
    """One option that this host cannot fulfil, and its replacement.

    `lacking` and `instead` are clauses without a full stop. `--strict` turns it into an error.
    """

    option: str
    asked: str
    lacking: str
    instead: str

    def __str__(self) -> str:
        return f"{self.option}={self.asked}: {self.lacking}; {self.instead}"
