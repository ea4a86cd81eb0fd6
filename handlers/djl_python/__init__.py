"""Names that a model.py imports from DJLServing's package: aliases of names in lmi_core and `services`."""

from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.djl_names.outputs import Output
from lmi_core.script.djl_names.pair_list import PairList
from lmi_core.script.djl_names.sessions import Session, SessionManager

__all__ = ["Input", "Output", "PairList", "Session", "SessionManager"]
