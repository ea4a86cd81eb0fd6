"""User functions that rewrite a request's payload before the dialect parses it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from lmi_core.calls.call import Call
from lmi_core.errors import ConfigurationError, FormatterFailed, LmiError
from lmi_core.script.djl_names.encode_decode import decode
from lmi_core.script.djl_names.inputs import BATCH_SIZE, input_of
from lmi_core.script.formatters.contracts import InputContract, Reading, read_input_contract
from lmi_core.script.formatters.request_io import RequestInput
from lmi_core.script.time_limits import TimeLimitExceeded, time_limit
from lmi_core.script.tracebacks import formatter_failure

GIVEN = ("tokenizer", "configs", "properties", "request_id")  # the available keyword arguments

Formatted = tuple[bytes, RequestInput | None]
RequestWriter = Callable[[RequestInput], Mapping[str, Any]]  # converts a function's result to the dialect's payload


@dataclass(frozen=True)
class InputFunction:
    """An input formatter function, and its contract."""

    name: str
    function: Callable[..., Any]
    reading: Reading[InputContract]
    directory: Path
    keywords: tuple[str, ...]  # the available ones that the function accepts


def input_function(function: Callable[..., Any], directory: Path) -> InputFunction:
    """Return the function with its contract. Raise ConfigurationError if it follows no contract."""
    name = getattr(function, "__name__", "input_formatter")
    reading = read_input_contract(function)
    return InputFunction(name, function, reading, directory, _keywords(name, function))


async def format_input(
    custom: InputFunction, call: Call, arguments: Mapping[str, Any], as_payload: RequestWriter, seconds: float
) -> Formatted:
    """Return the function's result for a call: the body for the dialect, and the request object, if it returned one.

    Raise FormatterFailed if it raises or exceeds `seconds`.
    """
    try:
        query = [(name, value.encode(errors="surrogateescape")) for name, value in call.query.items()]
        payload: Any = input_of(call_properties(call), [*query, ("data", call.body)])
        if custom.reading.contract is InputContract.PAYLOAD:
            payload = decode(payload, payload.get_property("Content-Type"))
        with time_limit(seconds):
            result = custom.function(payload, **{name: arguments[name] for name in custom.keywords})
        return _encode_result(custom, await result if inspect.isawaitable(result) else result, as_payload)
    except LmiError:
        raise
    except (Exception, SystemExit, TimeLimitExceeded) as error:  # a user's formatter may raise anything
        formatter, module = f"input formatter {custom.name}", custom.function.__module__
        raise formatter_failure(formatter, error, custom.directory, module, call.request_id) from error


def _keywords(name: str, function: Callable[..., Any]) -> tuple[str, ...]:
    _, *others = inspect.signature(function).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in others):
        return GIVEN
    named = [each for each in others if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    unknown = [each.name for each in named if each.default is inspect.Parameter.empty and each.name not in GIVEN]
    if unknown:
        raise ConfigurationError(
            f"the input formatter {name} has an unknown argument `{unknown[0]}`. Available: {', '.join(GIVEN)}"
        )
    return tuple(each.name for each in named if each.name in GIVEN)


def _encode_result(custom: InputFunction, result: Any, as_payload: RequestWriter) -> Formatted:
    if not isinstance(result, dict | list | RequestInput):
        raise FormatterFailed(
            f"the input formatter {custom.name} must return a dict or a RequestInput. Returned: {type(result).__name__}"
        )
    request = result if isinstance(result, RequestInput) else None
    payload = result if request is None else as_payload(request)
    return orjson.dumps(payload, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY), request


def call_properties(call: Call) -> dict[str, str]:
    """Return the headers, the attributes and the request's id; later ones override earlier ones."""
    given = [*call.headers.items(), *call.attributes.items()]
    properties = {_text(name): _text(value) for name, value in given}
    properties.pop(BATCH_SIZE, None)  # it would turn the call into a batch
    return properties | {"x-request-id": call.request_id}


def _text(value: str) -> str:
    """Return the text with invalid UTF-8 replaced."""
    return value.encode(errors="surrogateescape").decode(errors="replace")
