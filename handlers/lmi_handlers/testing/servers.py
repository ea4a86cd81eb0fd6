"""Servers in this process, for asynchronous tests, which share their event loop."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, cast

import aiohttp

from lmi_core.generation.request import ValidRequest
from lmi_core.plugins.loading import import_file, load_plugins
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_handlers.access.control import AccessControl
from lmi_handlers.access.options import DEFAULT_ACCESS, AccessOptions
from lmi_handlers.cli.plans import read_plans
from lmi_handlers.http.connections.limits import DEFAULT_LIMITS, ConnectionLimits
from lmi_handlers.http.server import Listener, Server
from lmi_handlers.management.reader import DirectoryReader
from lmi_handlers.testing.answers import Answer


class Scripted(Protocol):
    """The scripted backend (`lmi_plugins.backends.scripted`), which answers with enqueued scripts."""

    tokenizer: Any
    history: list[ValidRequest]
    max_length: int

    def enqueue(self, *scripts: Any) -> None: ...


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
        """The address of the gRPC server, which must have been requested."""
        (other,) = self.server.others
        return other.address

    @property
    def model(self) -> Model:
        """The only model of the server."""
        only = self.dispatcher.registry.only_model
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

    async def get(self, path: str, *, headers: dict[str, str] | None = None) -> Answer:
        async with self.client.get(path, headers=headers) as response:
            return Answer(response.status, response.headers, await response.read())

    async def pieces(
        self, path: str, payload: object, *, headers: dict[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """POST the payload as JSON and yield the body as it arrives; closing the generator disconnects."""
        async with self.client.post(path, json=payload, headers=headers) as response:
            async for piece in response.content.iter_any():
                yield piece


@asynccontextmanager
async def running_server(
    directory: Path,
    plugins: Sequence[object] = (),
    host: str = "127.0.0.1",
    *,
    grpc: bool = False,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    access: AccessOptions = DEFAULT_ACCESS,
) -> AsyncIterator[RunningServer]:
    """Run a server on a free port, for fixtures with a wider scope than `serve`; `grpc` adds a gRPC server.

    `plugins` are modules or Python files; `limits` are those of connections, and `access` contains the access rules.
    """
    loaded = load_plugins(modules=[import_file(each) if isinstance(each, Path) else each for each in plugins or ()])
    plans = read_plans(directory, {}, loaded)
    models = {plan.name: Model(plan, loaded.formatters) for plan in plans}
    dispatcher = Dispatcher(models, DirectoryReader(loaded, {}))
    control = AccessControl(dispatcher, access)
    others: list[Listener] = []
    if grpc:
        from lmi_handlers.kserve_grpc.server import GrpcServer

        others.append(GrpcServer(dispatcher, host, 0, control, limits))
    server = Server(dispatcher, loaded.handlers, host, 0, others, limits, control)
    try:
        await server.listen()
        await server.dispatcher.start()
        async with aiohttp.ClientSession(server.url) as client:
            yield RunningServer(server, client)
    finally:
        await server.stop()
