"""Aliases of `lmi_core.script`: the decorator of an output formatter, the types of its arguments, LMI's own answers."""

from djl_python.services.written_outputs import get_details_dict, get_generated_text
from djl_python.services.written_outputs import json_output_formatter as _json_output_formatter
from djl_python.services.written_outputs import jsonlines_output_formatter as _jsonlines_output_formatter
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
    "_json_output_formatter",
    "_jsonlines_output_formatter",
    "get_details_dict",
    "get_generated_text",
    "output_formatter",
]
