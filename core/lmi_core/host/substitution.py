"""What is done instead of what a model directory asks for, where this host lacks it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Substitution:
    """One option that asks for more than this host has, and what is done instead.

    `lacking` and `instead` are clauses without a full stop. `--strict` makes an error of it.
    """

    option: str
    asked: str
    lacking: str
    instead: str

    def __str__(self) -> str:
        return f"{self.option}={self.asked}: {self.lacking}; {self.instead}"
