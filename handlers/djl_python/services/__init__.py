"""The services that a model.py generates with, which read bodies and write answers as DJLServing's package does.

No module here is one of DJLServing's: its names are aliases beside this folder.
"""
