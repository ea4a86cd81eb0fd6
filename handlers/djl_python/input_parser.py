"""Aliases of `lmi_core.script`: decorators of functions in model.py, and parsers of their inputs."""

from djl_python.services.input_parsing import (
    ParsedInput,
    add_server_maintained_params,
    format_input,
    parse_adapters,
    parse_input_with_formatter,
    parse_lmi_default_request_rolling_batch,
    parse_text_inputs_params,
)
from lmi_core.decorators import init_handler, input_formatter, prediction_handler

SAGEMAKER_ADAPTER_IDENTIFIER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"

__all__ = [
    "SAGEMAKER_ADAPTER_IDENTIFIER_HEADER",
    "ParsedInput",
    "add_server_maintained_params",
    "format_input",
    "init_handler",
    "input_formatter",
    "parse_adapters",
    "parse_input_with_formatter",
    "parse_lmi_default_request_rolling_batch",
    "parse_text_inputs_params",
    "prediction_handler",
]
