"""Alias of `djl_python.services.service_properties`."""

from djl_python.services.service_properties import ServiceProperties as HuggingFaceProperties

__all__ = ["HuggingFaceProperties"]
