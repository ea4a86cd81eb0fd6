"""The marks by which a function in `model.py` is found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

T = TypeVar("T", bound=Callable[..., Any])

OUTPUT_MARK = "lmi_output_formatter"
INPUT_MARK = "lmi_input_formatter"
PREDICTION_MARK = "lmi_prediction_handler"
INIT_MARK = "lmi_init_handler"


@dataclass(frozen=True)
class OutputMark:
    """How a function is registered, and what its answers are sent with unless they say otherwise."""

    name: str
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@overload
def output_formatter(target: T) -> T: ...


@overload
def output_formatter(
    *, name: str | None = None, content_type: str | None = None, headers: Mapping[str, str] | None = None
) -> Callable[[T], T]: ...


def output_formatter(
    target: T | None = None,
    *,
    name: str | None = None,
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> T | Callable[[T], T]:
    """Make a function, or a subclass of OutputFormatter, an output formatter; it is known by its own name."""

    def mark(found: T) -> T:
        _must_be_callable(found, "output_formatter")
        setattr(found, OUTPUT_MARK, OutputMark(name or _name(found), content_type, headers or {}))
        return found

    return mark if target is None else mark(target)


def input_formatter(target: T) -> T:
    """Make a function the input formatter: it gets every request's payload before anything else reads it."""
    _must_be_callable(target, "input_formatter")
    setattr(target, INPUT_MARK, True)
    return target


def prediction_handler(target: T) -> T:
    """Make a function, `f(data, model, **kwargs)`, what answers every request in place of a model function."""
    _must_be_callable(target, "prediction_handler")
    setattr(target, PREDICTION_MARK, True)
    return target


def init_handler(target: T) -> T:
    """Make a function, `f(model_dir, **kwargs)`, what loads the model of a prediction handler."""
    _must_be_callable(target, "init_handler")
    setattr(target, INIT_MARK, True)
    return target


def _name(target: object) -> str:
    return getattr(target, "__name__", type(target).__name__)


def _must_be_callable(target: object, decorator: str) -> None:
    if not callable(target):
        raise TypeError(f"@{decorator} goes before a function, not before {type(target).__name__} {target!r}")
