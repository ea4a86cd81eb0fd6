"""Alias of `djl_python.services.chats`."""

from djl_python.services.chats import apply_chat_template, is_chat_completions_request, parse_chat_completions_request

__all__ = ["apply_chat_template", "is_chat_completions_request", "parse_chat_completions_request"]
