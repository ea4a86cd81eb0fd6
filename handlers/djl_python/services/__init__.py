"""Services with which a model.py generates; they read bodies and write answers like DJLServing's package.

The names of DJLServing's own modules are aliases next to this folder.
"""
