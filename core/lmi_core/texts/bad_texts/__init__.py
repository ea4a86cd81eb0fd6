"""Bans of texts, however they are split into tokens."""
