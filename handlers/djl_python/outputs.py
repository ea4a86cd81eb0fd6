"""`Output`."""

from lmi_core.script.djl_names.outputs import Output

__all__ = ["Output"]
