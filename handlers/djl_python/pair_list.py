"""Alias of `lmi_core.script.pair_list`."""

from lmi_core.script.pair_list import PairList

__all__ = ["PairList"]
