"""Aliases of `lmi_core.script.services`: helpers for a model's own function."""

from lmi_core.script.services.input_parsing import parse_input_with_formatter
from lmi_core.script.services.service_utils import (
    IdCounter,
    is_beam_search,
    is_best_of,
    is_multiple_sequences,
    wait_till_generation_finished,
)

__all__ = [
    "IdCounter",
    "is_beam_search",
    "is_best_of",
    "is_multiple_sequences",
    "parse_input_with_formatter",
    "wait_till_generation_finished",
]
