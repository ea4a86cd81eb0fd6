"""A model's properties with types."""
