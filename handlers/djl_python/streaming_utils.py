"""Alias of `djl_python.services.streaming`."""

from djl_python.services.streaming import StreamingUtils

__all__ = ["StreamingUtils"]
