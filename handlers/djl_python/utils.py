"""Small helpers."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from djl_python.input_parser import ParsedInput, parse_input_with_formatter

__all__ = [
    "IdCounter",
    "InputFormatConfigs",
    "ParsedInput",
    "is_beam_search",
    "is_best_of",
    "is_multiple_sequences",
    "parse_input_with_formatter",
    "wait_till_generation_finished",
]


@dataclass
class InputFormatConfigs:
    """How LMI v0.28's services read inputs."""

    is_rolling_batch: bool = False
    is_adapters_supported: bool = False
    output_formatter: str | Callable[..., Any] | None = None
    tokenizer: Any = None


class StopWord:
    """A stopping criterion of transformers: whether the latest tokens contain a match of `stop_seq`."""

    def __init__(self, tokenizer: Any, stop_seq: str) -> None:
        self.tokenizer = tokenizer
        self.stop_seq = stop_seq

    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> bool:
        latest = input_ids[0][-len(self.stop_seq) :]  # a token has at least one character
        return re.search(self.stop_seq, self.tokenizer.decode(latest)) is not None


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
