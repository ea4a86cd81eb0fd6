"""Alias of `lmi_core.script.services.input_parsing`."""

from lmi_core.script.services.input_parsing import Request

__all__ = ["Request"]
