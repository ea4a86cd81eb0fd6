"""The base of backends that generate text; it takes care of tokens, stop sequences, limits and counts."""
