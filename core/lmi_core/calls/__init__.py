"""A call: what a client sends, what its dialect makes of it, and what goes back."""
