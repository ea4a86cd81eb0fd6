"""`Input`, `Output`, `PairList`, `Session`, `SessionManager`."""

from djl_python.session_manager import Session, SessionManager
from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.djl_names.outputs import Output
from lmi_core.script.djl_names.pair_list import PairList

__all__ = ["Input", "Output", "PairList", "Session", "SessionManager"]
