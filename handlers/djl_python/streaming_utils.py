"""Alias of `lmi_core.script.services.streaming`."""

from lmi_core.script.services.streaming import StreamingUtils

__all__ = ["StreamingUtils"]
