"""Alias of `lmi_core.script.services.chats`."""

from lmi_core.script.services.chats import ChatProperties

__all__ = ["ChatProperties"]
