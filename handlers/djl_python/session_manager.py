"""Alias of `lmi_core.script.djl_names.sessions`."""

from lmi_core.script.djl_names.sessions import Session, SessionManager

__all__ = ["Session", "SessionManager"]
