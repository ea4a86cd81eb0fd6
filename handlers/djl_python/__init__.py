"""The names that a model.py imports from DJLServing's package, each an alias of lmi_core's."""

from lmi_core.script.inputs import Input
from lmi_core.script.outputs import Output
from lmi_core.script.pair_list import PairList
from lmi_core.script.sessions import Session, SessionManager

__all__ = ["Input", "Output", "PairList", "Session", "SessionManager"]
