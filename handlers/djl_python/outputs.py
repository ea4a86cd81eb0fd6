"""Alias of `lmi_core.script.outputs`."""

from lmi_core.script.outputs import Output

__all__ = ["Output"]
