"""What a client program is made of: cases that raise when the client does not get what it should."""

import asyncio
import inspect
import json
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HELLO_VARIABLE = "LMI_HELLO_URL"
SAYING_VARIABLE = "LMI_SAYING_URL"
RANKING_VARIABLE = "LMI_RANKING_URL"
ADAPTED_VARIABLE = "LMI_ADAPTED_TEXT"
LOG_LIKELIHOODS_VARIABLE = "LMI_LOG_LIKELIHOODS"
GRPC_VARIABLE = "LMI_HELLO_GRPC"
TORCH_VARIABLE = "LMI_TORCH_FOLDER"
VALUES_VARIABLE = "LMI_VALUES"  # values.py as JSON, for programs in other languages

Case = Callable[[], Any]

_CASES: dict[str, Case] = {}


def case(dialect: str, feature: str) -> Callable[[Case], Case]:
    """Declare a function that checks a feature of the client with a dialect; both are words for the page."""
    return _collect


def fault(dialect: str, what: str, workaround: str) -> Callable[[Case], Case]:
    """Declare a function that shows what the client does wrong by itself, and that the workaround helps."""
    return _collect


def _collect(function: Case) -> Case:
    _CASES[getattr(function, "__name__", "")] = function
    return function


def equal(found: object, expected: object) -> None:
    """Raise with both values unless they are equal."""
    if found != expected:
        raise AssertionError(f"found {found!r}, expected {expected!r}")


@contextmanager
def raising(kind: type[BaseException] | tuple[type[BaseException], ...], said: str) -> Iterator[None]:
    """Raise unless an error of this kind is raised inside, with this in its text."""
    try:
        yield
    except kind as error:
        if said not in str(error):
            raise AssertionError(f"{said!r} is not in the error's text") from error
    else:
        raise AssertionError(f"no error says {said!r}")


def hello() -> str:
    """Return the URL of the server of the hello model."""
    return os.environ[HELLO_VARIABLE]


def saying() -> str:
    """Return the URL of the server whose model calls tools and thinks."""
    return os.environ[SAYING_VARIABLE]


def ranking() -> str:
    """Return the URL of the server whose model is a reranker."""
    return os.environ[RANKING_VARIABLE]


def hello_grpc() -> str:
    """Return the address of the hello model's server for gRPC."""
    return os.environ[GRPC_VARIABLE]


def log_likelihoods() -> Any:
    """Return what transformers finds for `CONTINUATIONS` of the question, and for `TEXTS`, in the hello model."""
    return json.loads(os.environ[LOG_LIKELIHOODS_VARIABLE])


def adapted() -> str:
    """Return what the adapter `warm` of the hello model says to the question, in eight tokens."""
    return os.environ[ADAPTED_VARIABLE]


def run(names: list[str], results: Path) -> None:
    """Run the cases of these names, and write what each raised, or null, as JSON."""
    with asyncio.Runner() as runner:  # one loop for all, as clients keep connections
        outcomes = {name: _outcome(runner, _CASES[name]) for name in names}
    results.write_text(json.dumps(outcomes), encoding="utf-8")


def _outcome(runner: asyncio.Runner, function: Case) -> str | None:
    try:
        found = function()
        if inspect.isawaitable(found):
            runner.run(_finish(found))
    except Exception:
        return traceback.format_exc()
    return None


async def _finish(awaitable: Any) -> None:
    await awaitable
