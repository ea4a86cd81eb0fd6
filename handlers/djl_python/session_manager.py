"""Alias of `lmi_core.script.sessions`."""

from lmi_core.script.sessions import Session, SessionManager

__all__ = ["Session", "SessionManager"]
