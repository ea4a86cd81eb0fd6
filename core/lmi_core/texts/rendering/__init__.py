"""Rendering of chats by their templates, which are programs and are stopped if they take too long."""
