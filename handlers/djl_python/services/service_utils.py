"""Helpers of `djl_python.utils`."""

from collections.abc import Mapping
from typing import Any


class IdCounter:
    """A counter of increasing ids."""

    def __init__(self) -> None:
        self.id = 0

    def get_id(self) -> int:
        return self.id

    def next_id(self) -> int:
        self.id += 1
        return self.id - 1

    def reset(self) -> None:
        self.id = 0


def is_best_of(parameters: Mapping[str, Any]) -> bool:
    return (parameters.get("best_of") or 1) > 1


def is_multiple_sequences(parameters: Mapping[str, Any]) -> bool:
    return (parameters.get("n") or 1) > 1


def is_beam_search(parameters: Mapping[str, Any]) -> bool:
    return (parameters.get("num_beams") or 1) > 1


def wait_till_generation_finished(parameters: Mapping[str, Any]) -> bool:
    """Return whether the best of several sequences is known only at the end."""
    return is_best_of(parameters) or is_multiple_sequences(parameters) or is_beam_search(parameters)
