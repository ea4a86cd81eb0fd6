"""The pytest plugin. pytest imports it at every start, so it imports its requirements on demand."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lmi_handlers.testing.answers import Answer
    from lmi_handlers.testing.plain import PlainServer
    from lmi_handlers.testing.servers import RunningServer

try:
    import pytest_asyncio
except ImportError:  # then only plain tests work
    pytest_asyncio = None  # type: ignore[assignment]

ASYNCIO = "asyncio"  # the name of pytest-asyncio's plugin and of its mark
IN_LOOP = "lmi_servers_in_loop"

ModelDirectory = Callable[..., Path]  # the type of the fixture `model_dir`
Serve = Callable[..., "Awaitable[RunningServer]"]  # the type of the fixture `serve` in asynchronous tests
PlainServe = Callable[..., "PlainServer"]  # the type of the fixture `serve` in plain tests
Golden = Callable[["Answer", str], None]  # the type of the fixture `golden`


@pytest.fixture
def model_dir(tmp_path: Path) -> ModelDirectory:
    """Write a model directory and return its path: `model_dir({"serving.properties": "..."}, name="m")`."""

    def write(files: Mapping[str, str], name: str = "model") -> Path:
        directory = tmp_path / name
        directory.mkdir(parents=True)
        for path, text in files.items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text)
        return directory

    return write


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare an answer with its transcript: `golden(answer, "name")` reads `golden/name.txt` next to the test."""
    from lmi_handlers.testing.answers import compare

    return lambda answer, name: compare(answer, request.path.parent, name)


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Serve a model directory on a free port until the test ends: `serve(directory, plugins=[...], grpc=True)`.

    In an asynchronous test, which needs pytest-asyncio: `await serve(directory)`.
    """
    in_loop: Serve | None = request.getfixturevalue(IN_LOOP) if _has_asyncio(request.config) else None
    with ExitStack() as stack:

        def start(directory: Path, plugins: Sequence[object] = (), *, grpc: bool = False) -> Any:
            if not _loop_runs():
                from lmi_handlers.testing.plain import plain_server

                return stack.enter_context(plain_server(directory, plugins, grpc=grpc))
            if in_loop is None:
                pytest.fail("`await serve(...)` needs pytest-asyncio; tests without async do not", pytrace=False)
            return in_loop(directory, plugins, grpc=grpc)

        yield start


if pytest_asyncio is not None:

    @pytest_asyncio.fixture
    async def lmi_servers_in_loop() -> AsyncIterator[Serve]:
        """Start servers in the event loop of an asynchronous test, for `serve`."""
        async with AsyncExitStack() as stack:

            async def start(directory: Path, plugins: Sequence[object] = (), *, grpc: bool = False) -> "RunningServer":
                from lmi_handlers.testing.servers import running_server

                return await stack.enter_async_context(running_server(directory, plugins, grpc=grpc))

            yield start


@pytest.hookimpl(wrapper=True, trylast=True)  # before pytest-asyncio, whose strict mode looks for its mark
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Mark the asynchronous tests that use `serve`, so that pytest-asyncio runs them in any mode."""
    found = yield
    if _has_asyncio(collector.config):
        for item in found if isinstance(found, list) else [found]:
            if isinstance(item, pytest.Function) and _needs_mark(item):
                item.add_marker(ASYNCIO)
    return found


def _needs_mark(item: pytest.Function) -> bool:
    if not inspect.iscoroutinefunction(item.obj) or any(map(item.get_closest_marker, (ASYNCIO, "anyio"))):
        return False
    # Others may have their own `serve`. pytest provides the names of a test's fixtures but not their definitions:
    # https://github.com/pytest-dev/pytest/blob/main/src/_pytest/python.py. `tests/handlers/testing` checks the result.
    fixtures = item._fixtureinfo.name2fixturedefs.get(serve.__name__, ())
    return bool(fixtures) and fixtures[-1].func.__module__ == __name__


def _has_asyncio(config: pytest.Config) -> bool:
    return config.pluginmanager.hasplugin(ASYNCIO)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
