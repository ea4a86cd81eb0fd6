"""Alias of `lmi_core.script.services.service_properties`."""

from lmi_core.script.services.service_properties import ServiceProperties as HuggingFaceProperties

__all__ = ["HuggingFaceProperties"]
