"""The types that formatters receive and return."""

from lmi_core.script.formatters.request_io import (
    RequestInput,
    RequestOutput,
    Sequence,
    TextGenerationOutput,
    TextInput,
    Token,
)

__all__ = ["RequestInput", "RequestOutput", "Sequence", "TextGenerationOutput", "TextInput", "Token"]
