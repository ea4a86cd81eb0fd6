"""Detection of a formatter function's contract from its signature and annotations."""

import ast
import inspect
import typing
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

from lmi_core.errors import ConfigurationError

Function = Callable[..., Any]


class OutputContract(StrEnum):
    """The argument of an output formatter; `lmi check` prints the values."""

    GENERATION_OUTPUT = "(output: GenerationOutput) -> str | bytes | dict"
    REQUEST_OUTPUT = "(request_output: TextGenerationOutput) -> str"
    LEGACY = "(token, first_token, last_token, details, generated_text, request_id) -> str"
    RESPONSE_DATA = "(response_data: dict) -> dict"
    ENGINE_OBJECT = "(response) -> response"


class InputContract(StrEnum):
    """The argument of an input formatter; `lmi check` prints the values."""

    INPUT_ITEM = "(input_item: Input, **kwargs) -> RequestInput"
    PAYLOAD = "(decoded_payload: dict, tokenizer=None, **kwargs) -> dict"


# The parameter name of the dict that DJLServing's formatter functions receive and change; a function with it follows
# that contract.
KEY = "generated_text"

C = TypeVar("C", OutputContract, InputContract)


class Reading(NamedTuple, Generic[C]):
    """A contract and, if the signature leaves it open, the evidence for it."""

    contract: C
    ambiguous: str | None = None


class _Evidence(NamedTuple, Generic[C]):
    """The evidence for a contract: the names of annotations, the parameter, and accessed attributes."""

    annotations: Mapping[str, C]
    names: Mapping[str, C]
    reads: Mapping[str, C]
    likely_names: Mapping[str, C]  # parameters that suggest another contract, and that contract
    otherwise: C


_OUTPUT = _Evidence(
    annotations={
        "GenerationOutput": OutputContract.GENERATION_OUTPUT,
        "TextGenerationOutput": OutputContract.REQUEST_OUTPUT,
        "RequestOutput": OutputContract.REQUEST_OUTPUT,
        **dict.fromkeys(("dict", "Dict", "Mapping", "MutableMapping"), OutputContract.RESPONSE_DATA),
        **dict.fromkeys(
            (
                "CompletionResponse",
                "CompletionStreamResponse",
                "ChatCompletionResponse",
                "ChatCompletionStreamResponse",
            ),
            OutputContract.ENGINE_OBJECT,
        ),
    },
    names={"request_output": OutputContract.REQUEST_OUTPUT, "response_data": OutputContract.RESPONSE_DATA},
    reads={
        **dict.fromkeys(("sequences", "best_sequence_index", "get_next_token"), OutputContract.REQUEST_OUTPUT),
        **dict.fromkeys(("choices", "model_dump"), OutputContract.ENGINE_OBJECT),
        **dict.fromkeys(("get", "items", "pop", "update", "setdefault", KEY), OutputContract.RESPONSE_DATA),
    },
    likely_names={"response": OutputContract.ENGINE_OBJECT, "data": OutputContract.RESPONSE_DATA},
    otherwise=OutputContract.REQUEST_OUTPUT,
)
_INPUT = _Evidence(
    annotations={
        "Input": InputContract.INPUT_ITEM,
        **dict.fromkeys(("dict", "Dict", "Mapping", "MutableMapping"), InputContract.PAYLOAD),
    },
    names={"input_item": InputContract.INPUT_ITEM, "decoded_payload": InputContract.PAYLOAD},
    reads=dict.fromkeys(
        ("get_property", "get_properties", "get_content", "get_as_json", "get_as_string", "get_as_bytes"),
        InputContract.INPUT_ITEM,
    ),
    likely_names={"inputs": InputContract.INPUT_ITEM, "item": InputContract.INPUT_ITEM},
    otherwise=InputContract.PAYLOAD,
)


def read_output_contract(function: Function, *, own_decorator: bool = False) -> Reading[OutputContract]:
    """Return an output formatter's contract; by default ours, if our own decorator marks it.

    Raise ConfigurationError if it follows no contract.
    """
    if inspect.iscoroutinefunction(function):
        raise ConfigurationError(f"the output formatter {_name(function)} must not be async")
    positional = _positional(function)
    if len(positional) == 6:
        return Reading(OutputContract.LEGACY)
    required = [each for each in positional if each.default is inspect.Parameter.empty]
    if not positional or len(required) > 1:
        raise ConfigurationError(
            f"the output formatter {_name(function)}{inspect.signature(function)} must take one argument, the output "
            "or the response (or six, as before LMI v0.28)"
        )
    return _read(function, positional[0], _OUTPUT, OutputContract.GENERATION_OUTPUT if own_decorator else None)


def read_input_contract(function: Function) -> Reading[InputContract]:
    """Return an input formatter's contract. Raise ConfigurationError if it follows no contract."""
    positional = _positional(function)
    if not positional:
        raise ConfigurationError(
            f"the input formatter {_name(function)}{inspect.signature(function)} must take the payload as its first"
            " argument"
        )
    return _read(function, positional[0], _INPUT)


def _read(function: Function, parameter: inspect.Parameter, signs: _Evidence[C], own: C | None = None) -> Reading[C]:
    """Return the contract; `own` is that of our own decorator, which only an annotation overrides."""
    for name in _annotation_names(parameter.annotation):
        if name in signs.annotations:
            return Reading(signs.annotations[name])
    is_djl_name = parameter.name in signs.names
    if own is not None:
        doubt = f"`{parameter.name}` is the argument's name in djl_python, but the decorator is not djl_python's"
        return Reading(own, doubt if is_djl_name else None)
    if is_djl_name and parameter.annotation is inspect.Parameter.empty:
        return Reading(signs.names[parameter.name])
    read = _used_names(function)
    for name, contract in signs.reads.items():
        if name in read:
            return Reading(contract, f"`{parameter.name}` has no annotation; the function uses `{name}`")
    likely = signs.likely_names.get(parameter.name, signs.otherwise)
    return Reading(
        likely,
        f"`{parameter.name}` has no annotation, and the attributes that the function uses do not decide it either",
    )


def numbers_tokens(function: Function) -> bool:
    """Return whether the function's file unpacks four values of `get_next_token`, as LMI returns since v0.32."""
    try:
        lines, _ = inspect.findsource(inspect.unwrap(function))
    except (OSError, TypeError):  # no source
        return False
    return any(
        isinstance(node.targets[0], ast.Tuple)
        and len(node.targets[0].elts) == 4
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "get_next_token"
        for node in ast.walk(ast.parse("".join(lines)))
        if isinstance(node, ast.Assign)
    )


def _positional(function: Function) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each for each in inspect.signature(function).parameters.values() if each.kind in kinds]


def _annotation_names(annotation: Any) -> list[str]:
    """Return the names of an annotation's classes and their bases, for each member of a union; annotations may be
    text.
    """
    if annotation is inspect.Parameter.empty:
        return []
    if isinstance(annotation, str):
        return [part.partition("[")[0].rpartition(".")[2].strip() for part in annotation.split("|")]
    origin = typing.get_origin(annotation)
    if origin is None:
        return [base.__name__ for base in getattr(annotation, "__mro__", ())]
    names = [getattr(origin, "__name__", "")]
    return names + [name for member in typing.get_args(annotation) for name in _annotation_names(member)]


def _used_names(function: Function) -> set[str]:
    """Return the attributes, globals, `hasattr` names and keys in the function's own code."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return set()
    names, texts = set(code.co_names), {each for each in code.co_consts if isinstance(each, str)}
    return names | (texts if names & {"hasattr", "getattr"} else texts & {KEY})


def _name(function: Function) -> str:
    return getattr(function, "__name__", repr(function))
