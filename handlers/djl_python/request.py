"""Alias of `djl_python.services.input_parsing`."""

from djl_python.services.input_parsing import Request

__all__ = ["Request"]
