"""`HuggingFaceProperties`: the properties that this server reads."""

from djl_python.properties_manager.properties import Properties as HuggingFaceProperties

__all__ = ["HuggingFaceProperties"]
