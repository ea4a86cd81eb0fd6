"""Conversion of arrays to and from `tensor/ndlist`."""

from lmi_core.script.djl_names.nd_list import from_nd_list, to_nd_list

__all__ = ["from_nd_list", "to_nd_list"]
