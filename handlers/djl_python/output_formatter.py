"""Aliases of `lmi_core.script`: the mark of an output formatter, and what one gets."""

from lmi_core.script.decorators import output_formatter
from lmi_core.script.request_io import RequestOutput, Sequence, TextGenerationOutput, Token

__all__ = ["RequestOutput", "Sequence", "TextGenerationOutput", "Token", "output_formatter"]
