"""Aliases of `lmi_core.script`: the decorator of an output formatter, and the types of its arguments."""

from lmi_core.decorators import djl_output_formatter as output_formatter
from lmi_core.script.formatters.request_io import (
    RequestInput,
    RequestOutput,
    Sequence,
    TextGenerationOutput,
    TextInput,
    Token,
)

__all__ = [
    "RequestInput",
    "RequestOutput",
    "Sequence",
    "TextGenerationOutput",
    "TextInput",
    "Token",
    "output_formatter",
]
