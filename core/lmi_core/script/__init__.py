"""A model's own code: `model.py`, its formatters and its model function, and the names of `djl_python`."""
