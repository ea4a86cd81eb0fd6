"""Aliases for chat requests in a model's own function."""
