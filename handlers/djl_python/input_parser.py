"""Alias of `lmi_core.script.decorators`: the mark of an input formatter."""

from lmi_core.script.adapter_names import ADAPTER_HEADER as SAGEMAKER_ADAPTER_IDENTIFIER_HEADER
from lmi_core.script.decorators import input_formatter

__all__ = ["SAGEMAKER_ADAPTER_IDENTIFIER_HEADER", "input_formatter"]
