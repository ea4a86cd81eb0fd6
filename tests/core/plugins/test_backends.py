"""A backend class that cannot work is refused when it is registered, in sentences for its author."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import pytest

from lmi_core.errors import PluginError
from lmi_core.plugins.backends import BackendRegistry
from lmi_core.plugins.registry import origin
from lmi_core.text_backend.backend import TextBackend
from lmi_plugins.backends.scripted import ScriptedBackend


class Coroutine(ScriptedBackend):
    async def generate(self, request: Any) -> Any:  # type: ignore[override]
        return []


class Blocking(ScriptedBackend):
    def generate(self, request: Any) -> Any:
        yield from ()


class OfText(ScriptedBackend):
    async def generate(self, prompt: Any, parameters: Any) -> Any:  # type: ignore[override]
        yield prompt


class Methods(ScriptedBackend):
    def start(self) -> Any:
        pass

    async def health(self) -> Any:
        yield


class Types(ScriptedBackend):
    properties_type: ClassVar[Any] = dict
    parameters_type: ClassVar[Any] = "parameters"


class TextOfSteps(TextBackend[Any]):
    name = "text"

    def generate(self, request: Any) -> Any:  # type: ignore[override]
        yield "one"


class TextCoroutine(TextBackend[Any]):
    name = "text"

    async def generate(self, prompt: Any, parameters: Any) -> Any:  # type: ignore[override]
        return "one"


@pytest.mark.parametrize(
    ("backend", "faults"),
    [
        (Coroutine, ["`generate` must be a generator: it has no `yield`"]),
        (Blocking, ["`generate` must be an asynchronous generator: write `async def`"]),
        (OfText, ["`generate` must take self, request. Given: generate(self, prompt: Any, parameters: Any) -> Any"]),
        (
            Methods,
            ["`start` must be an `async def`", "`health` must not yield: it is an `async def` that returns"],
        ),
        (
            Types,
            [
                "`properties_type` must be a subclass of lmi.ModelProperties. Given: <class 'dict'>",
                "`parameters_type` must be a subclass of lmi.GenerationParameters. Given: 'parameters'",
            ],
        ),
        (TextOfSteps, ["`generate` must take self, prompt, parameters. Given: generate(self, request: Any) -> Any"]),
        (TextCoroutine, ["`generate` must be a generator: it has no `yield`"]),
    ],
)
def test_classes_that_cannot_work(backend: Any, faults: list[str]) -> None:
    with pytest.raises(PluginError) as failure:
        BackendRegistry().register(backend)
    assert failure.value.message.splitlines() == [f"the backend {origin(backend)}: {fault}" for fault in faults]


class Asynchronous(TextBackend[Any]):
    name = "asynchronous"

    async def generate(self, prompt: str, parameters: Any, extra: int = 0) -> AsyncIterator[str]:
        yield "one"


class Threaded(TextBackend[Any]):
    name = "threaded"

    def generate(self, prompt: str, parameters: Any) -> Iterator[str]:
        yield "one"


class Listed(TextBackend[Any]):
    name = "listed"

    def generate(self, *arguments: Any) -> list[str]:
        return ["one"]


@pytest.mark.parametrize("backend", [Asynchronous, Threaded, Listed, ScriptedBackend])
def test_classes_that_work(backend: Any) -> None:
    registry = BackendRegistry()
    registry.register(backend)
    assert registry.get(backend.name) is backend
