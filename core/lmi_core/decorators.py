"""The decorators that mark functions in `model.py`."""

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
    """A function's registered name, with the default content type and headers of its answers."""

    name: str
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    own: bool = False  # this project's own decorator: the function takes a GenerationOutput


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
    """Mark a function or an OutputFormatter subclass as an output formatter, by default under its own name.

    The function's argument is a GenerationOutput, unless its annotation differs.
    """
    mark = _marking(name, content_type, headers)
    return mark if target is None else mark(target)


def djl_output_formatter(target: Any = None, **options: Any) -> Any:
    """Mark a function that follows one of DJLServing's contracts, under DJLServing's name of the decorator."""
    mark = _marking(own=False, **options)
    return mark if target is None else mark(target)


def input_formatter(target: T) -> T:
    """Mark a function as the input formatter, which rewrites every request's payload before it is parsed."""
    setattr(target, INPUT_MARK, True)
    return target


def prediction_handler(target: T) -> T:
    """Mark `f(data, model, **kwargs)` as the prediction handler, which answers every request."""
    setattr(target, PREDICTION_MARK, True)
    return target


def init_handler(target: T) -> T:
    """Mark `f(model_dir, **kwargs)` as the init handler, which loads the model of a prediction handler."""
    setattr(target, INIT_MARK, True)
    return target


def _marking(
    name: str | None = None,
    content_type: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    own: bool = True,
) -> Callable[[T], T]:
    def mark(found: T) -> T:
        setattr(found, OUTPUT_MARK, OutputMark(name or _name(found), content_type, headers or {}, own))
        return found

    return mark


def _name(target: object) -> str:
    return getattr(target, "__name__", type(target).__name__)
