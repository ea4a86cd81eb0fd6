"""A model that a model's own function generates with, and what DJLServing's package has around it."""
