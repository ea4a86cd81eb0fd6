"""A pytest plugin for authors of formatters, handlers, backends and dialects; this project's own tests use it.

`pytest_plugins = ["lmi_handlers.testing"]` in a test or a conftest.py gives its fixtures: `model_dir`, `serve` and
`golden`. (PYTEST_DONT_REWRITE: tests import the names of this module before pytest does.)
"""

import difflib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import aiohttp
import orjson
import pytest
import pytest_asyncio

from lmi_core.plugins.loading import load_plugins
from lmi_core.request import ValidRequest
from lmi_core.serving.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_handlers.cli.serving import read_plans
from lmi_handlers.http.server import Listener, Server

SCRIPTED = "option.rolling_batch=scripted\n"  # serving.properties of a model without weights
WRITE_VARIABLE = "LMI_WRITE_GOLDEN"  # environment variable: set it to write transcripts anew
GOLDEN_FOLDER = "golden"

ModelDirectory = Callable[..., Path]


class Scripted(Protocol):
    """The scripted backend (`lmi_plugins.backends.scripted`), which answers with the scripts that were enqueued."""

    tokenizer: Any
    history: list[ValidRequest]
    max_length: int

    def enqueue(self, *scripts: Any) -> None: ...


class Answer:
    """A complete HTTP response."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def content_type(self) -> str:
        return self.headers["Content-Type"]

    def json(self) -> Any:
        return orjson.loads(self.body)

    def json_lines(self) -> list[Any]:
        """Return the object in each line, all of which must end with a newline."""
        assert self.body.endswith(b"\n")
        return [orjson.loads(line) for line in self.body.splitlines()]

    def events(self, prefix: bytes) -> list[Any]:
        """Return the parsed server-sent events, each of which must have exactly this prefix."""
        assert self.body.endswith(b"\n\n")
        events = self.body.removesuffix(b"\n\n").split(b"\n\n")
        assert all(event.startswith(prefix) and b"\n" not in event for event in events)
        return [orjson.loads(event.removeprefix(prefix)) for event in events]


class RunningServer:
    """A server in this process on a free port, with a client."""

    def __init__(self, server: Server, client: aiohttp.ClientSession) -> None:
        self.server = server
        self.client = client

    @property
    def dispatcher(self) -> Dispatcher:
        return self.server.dispatcher

    @property
    def grpc_address(self) -> str:
        """The address of the gRPC server, which must have been asked for."""
        (other,) = self.server.others
        return other.address

    @property
    def model(self) -> Model:
        """The only model of the server."""
        only = self.dispatcher.only_model
        assert only is not None
        return only

    @property
    def scripted(self) -> Scripted:
        """The backend of the only model, which must have `option.rolling_batch=scripted`."""
        backend = self.model.backend
        assert hasattr(backend, "enqueue"), f"the {backend.name} backend has no scripts"
        return cast(Scripted, backend)

    async def post(
        self, path: str, payload: object = None, *, data: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """POST the payload as JSON, or the data unchanged, and return the complete response."""
        body: dict[str, Any] = {"json": payload} if data is None else {"data": data}
        async with self.client.post(path, headers=headers, **body) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str) -> Answer:
        async with self.client.get(path) as response:
            return Answer(response.status, response.headers, await response.read())


Serve = Callable[..., Awaitable[RunningServer]]
Golden = Callable[[Answer, str], None]


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


@asynccontextmanager
async def running_server(
    directory: Path, plugins: list[object] | None = None, host: str = "127.0.0.1", *, grpc: bool = False
) -> AsyncIterator[RunningServer]:
    """Run a server on a free port, for fixtures with a wider scope than `serve`; `grpc` adds one of gRPC."""
    loaded = load_plugins(modules=plugins or [])
    plans = read_plans(directory, {}, loaded)
    dispatcher = Dispatcher({plan.name: Model(plan, loaded.formatters) for plan in plans})
    server = Server(dispatcher, loaded.handlers, host, 0, _grpc_server(dispatcher, host) if grpc else ())
    await server.listen()
    try:
        await server.dispatcher.start()
        async with aiohttp.ClientSession(server.url) as client:
            yield RunningServer(server, client)
    finally:
        await server.stop()


def _grpc_server(dispatcher: Dispatcher, host: str) -> list[Listener]:
    from lmi_handlers.kserve_grpc.server import GrpcServer

    return [GrpcServer(dispatcher, host, 0)]


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server on a free port until the test ends: `await serve(directory, plugins=[...], grpc=True)`."""
    async with AsyncExitStack() as stack:

        async def start(directory: Path, plugins: list[object] | None = None, *, grpc: bool = False) -> RunningServer:
            return await stack.enter_async_context(running_server(directory, plugins, grpc=grpc))

        yield start


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare an answer with its transcript: `golden(answer, "name")` reads `golden/name.txt` beside the test."""

    def compare(answer: Answer, name: str) -> None:
        path = request.path.parent / GOLDEN_FOLDER / f"{name}.txt"
        found = transcript(answer)
        if WRITE_VARIABLE in os.environ:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(found)
        if not path.is_file():
            pytest.fail(f"{path} is missing: run with {WRITE_VARIABLE}=1 to write it")
        if found != path.read_bytes():
            pytest.fail("\n".join(_difference(path, found)), pytrace=False)

    return compare


def transcript(answer: Answer) -> bytes:
    """Return the answer's status, content type and body as one text."""
    return f"{answer.status}\n{answer.content_type}\n\n".encode() + answer.body


def _difference(path: Path, found: bytes) -> Iterator[str]:
    recorded, answered = (data.decode(errors="backslashreplace").splitlines() for data in (path.read_bytes(), found))
    return difflib.unified_diff(recorded, answered, str(path), "this answer", lineterm="")
