"""Aliases of `djl_python.services`: helpers for a model's own function."""

from djl_python.services.input_parsing import ParsedInput, parse_input_with_formatter
from djl_python.services.service_utils import (
    IdCounter,
    InputFormatConfigs,
    is_beam_search,
    is_best_of,
    is_multiple_sequences,
    wait_till_generation_finished,
)

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
