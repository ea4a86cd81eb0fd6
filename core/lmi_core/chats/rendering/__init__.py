"""Rendering of chats by their templates, which are programs that may never end, within bounds."""
