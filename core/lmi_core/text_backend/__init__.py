"""Backends that generate text, whose tokens, stop sequences, limits and counts are done for them."""
