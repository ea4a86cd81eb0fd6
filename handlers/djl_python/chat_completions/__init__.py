"""Chats in a model's own function: two modules."""
