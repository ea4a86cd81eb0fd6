"""Alias of `djl_python.services.chats`."""

from djl_python.services.chats import ChatProperties

__all__ = ["ChatProperties"]
