"""Alias of `djl_python.services.chats`."""

from djl_python.services.chats import ChatProperties, Message

__all__ = ["ChatProperties", "Message"]
