"""Alias of `lmi_core.script.inputs`."""

from lmi_core.script.inputs import Input

__all__ = ["Input"]
