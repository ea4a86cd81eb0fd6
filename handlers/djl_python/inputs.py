"""`Input`."""

from lmi_core.script.djl_names.inputs import Input

__all__ = ["Input"]
