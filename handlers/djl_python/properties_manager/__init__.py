"""Two modules for the typed properties of a model."""
