"""`PairList`."""

from lmi_core.script.djl_names.pair_list import PairList

__all__ = ["PairList"]
