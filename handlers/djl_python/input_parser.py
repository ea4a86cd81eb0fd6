"""`@input_formatter`, `@prediction_handler`, `@init_handler`; parsing of LMI's schema."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from djl_python.chat_completions.chat_utils import is_chat_completions_request, parse_chat_completions_request
from djl_python.properties_manager.properties import is_rolling_batch_enabled
from djl_python.request import Request
from lmi_core.decorators import init_handler, input_formatter, prediction_handler
from lmi_core.script.djl_names.encode_decode import decode
from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.formatters.request_io import RequestInput, TextInput

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

SAGEMAKER_ADAPTER_IDENTIFIER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
logger = logging.getLogger(__name__)

FAILED = "Input Parsing failed. Ensure that the request payload is valid. "
ADAPTER = "adapter"  # the property, or the query field, that names an adapter


@dataclass
class ParsedInput:
    """The parsed requests of a batch, and errors by request index."""

    errors: dict[int, str] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    batch: list[Input] = field(default_factory=list)


def parse_input_with_formatter(inputs: Input, **kwargs: Any) -> ParsedInput:
    """Read each request of the batch with `configs.input_formatter`, or by LMI's schema."""
    configs = kwargs.get("configs")
    read = getattr(configs, "input_formatter", None) or format_input
    kwargs.setdefault("is_rolling_batch", is_rolling_batch_enabled(getattr(configs, "rolling_batch", None)))
    parsed = ParsedInput(batch=inputs.get_batches())
    for index, item in enumerate(parsed.batch):
        try:
            request_input = read(item, **kwargs)
            request_input.request_id = item.get_property("x-request-id") or index
            request_input.tokenizer = kwargs.get("tokenizer")
            request_input.tgi_compat = bool(getattr(configs, "tgi_compat", False))
            add_server_maintained_params(request_input, item, **kwargs)
            parsed.requests.append(Request(request_input))
        except Exception as error:  # the client's data or a user's formatter may raise anything
            logger.warning("a request could not be parsed: %s", error, exc_info=True)
            parsed.errors[index] = FAILED + _words(error)
    return parsed


def format_input(input_item: Input, **kwargs: Any) -> TextInput:
    """Read LMI's schema, or a chat."""
    request_input = TextInput()
    body = decode(input_item, input_item.get_property("Content-Type"))
    parse_text_inputs_params(request_input, input_item, body, **kwargs)
    parse_adapters(request_input, input_item, body, **kwargs)
    return request_input


def parse_text_inputs_params(request_input: TextInput, input_item: Input, input_map: Any, **kwargs: Any) -> None:
    """Set the request's prompt and parameters. Raise ValueError if the body is invalid."""
    is_rolling_batch = bool(kwargs.get("is_rolling_batch"))
    if is_chat_completions_request(input_map):
        request_input.input_text, request_input.parameters = parse_chat_completions_request(
            input_map, is_rolling_batch, kwargs.get("tokenizer"), configs=kwargs.get("configs")
        )
    elif is_rolling_batch:
        request_input.input_text, request_input.parameters = parse_lmi_default_request_rolling_batch(input_map)
    else:
        request_input.input_text, request_input.parameters = _dynamic(input_map)


def parse_lmi_default_request_rolling_batch(payload: Any) -> tuple[Any, dict[str, Any]]:
    """Return the prompt and parameters in LMI's rolling-batch schema. Raise ValueError if the body is invalid."""
    if not isinstance(payload, dict) or payload.get("inputs") is None:
        raise ValueError(f"the body must be a JSON object with the field `inputs`. Given: {payload!r}")
    return payload["inputs"], {**_parameters(payload), "stream": payload.get("stream", False)}


def _dynamic(payload: Any) -> tuple[Any, dict[str, Any]]:
    return (payload.get("inputs", payload), _parameters(payload)) if isinstance(payload, dict) else (payload, {})


def _parameters(payload: Mapping[str, Any]) -> dict[str, Any]:
    parameters = payload.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise ValueError(f"`parameters` must be an object. Given: {parameters!r}")
    return dict(parameters)


def add_server_maintained_params(request_input: RequestInput, input_item: Input, **kwargs: Any) -> None:
    """Copy the parameters to those of the server, which also contain the formatter and the seed."""
    request_input.server_parameters = dict(request_input.parameters)
    if "seed" not in request_input.parameters and input_item.contains_key("seed"):
        request_input.server_parameters["seed"] = input_item.get_as_string("seed")
    default = getattr(kwargs.get("configs"), "output_formatter", None)
    request_input.server_parameters.setdefault("output_formatter", request_input.output_formatter or default)


def parse_adapters(request_input: TextInput, input_item: Input, input_map: Any, **kwargs: Any) -> None:
    """Set the adapters named in the body, the input's property or the query.

    Raise ValueError for an unknown adapter, or if these differ.
    """
    in_body = input_map.get("adapters") if isinstance(input_map, dict) else None
    elsewhere = _adapters_beside_the_body(input_item)
    named = in_body if isinstance(in_body, list) else [] if in_body is None else [in_body]
    known = kwargs.get("adapter_registry") or {}
    for name in [*elsewhere, *named]:
        if name and name not in known:
            raise ValueError(f"Adapter {name} is not registered")
    different = list(dict.fromkeys([*named, *elsewhere]))
    if elsewhere and len(different) > 1:
        raise ValueError(f"one request names different adapters: {', '.join(map(repr, different))}")
    request_input.adapters = in_body or (elsewhere[0] if elsewhere else None)


def _adapters_beside_the_body(input_item: Input) -> list[str]:
    """Return the names in the property, which the server sets from headers, and in the query."""
    named = (input_item.get_property(ADAPTER) or "").split(";")
    if input_item.contains_key(ADAPTER):
        named.append(input_item.get_as_string(ADAPTER))
    return [name for name in named if name]


def _words(error: Exception) -> str:
    return f"Invalid Request Property: {error}" if isinstance(error, KeyError) else str(error)
