"""Aliases for the typed properties of a model."""
