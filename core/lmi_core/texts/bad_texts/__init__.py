"""Bans of texts, regardless of their tokenization."""
