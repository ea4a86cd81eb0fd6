"""Chats, as a model's own function reads them."""
