"""A model's own code: `model.py`, its formatters, and its model function. `djl_python` gives these names out."""
