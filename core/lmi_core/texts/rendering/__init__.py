"""Rendering of chats by their templates, which are programs; rendering is stopped if it takes too long."""
