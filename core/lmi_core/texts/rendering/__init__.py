"""Rendering of chats by their templates, which are programs: a template that takes too long is ended."""
