"""The typed properties of a model: two modules."""
