"""Alias of `lmi_core.script.djl_names.inputs`."""

from lmi_core.script.djl_names.inputs import Input

__all__ = ["Input"]
