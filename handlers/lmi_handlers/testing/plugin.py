"""The pytest plugin. pytest imports it at every start, so it imports its requirements on demand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
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

ASYNCIO = "asyncio"  # the name of pytest-asyncio's plugin
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


def _has_asyncio(config: pytest.Config) -> bool:
    return config.pluginmanager.hasplugin(ASYNCIO)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
