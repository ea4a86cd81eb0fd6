"""Servers in this process, in their own thread, for tests without `async`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lmi_core.serving.model import Model
from lmi_handlers.offline.loop_thread import LoopThread
from lmi_handlers.testing.answers import Answer
from lmi_handlers.testing.servers import RunningServer, Scripted, running_server


class PlainServer:
    """A server in a thread of this process on a free port, with a blocking client."""

    def __init__(self, running: RunningServer, thread: LoopThread) -> None:
        self._running = running
        self._thread = thread

    @property
    def url(self) -> str:
        """The address, for other clients."""
        return self._running.server.url

    @property
    def grpc_address(self) -> str:
        """The address of the gRPC server, which must have been requested."""
        return self._running.grpc_address

    @property
    def model(self) -> Model:
        """The only model of the server."""
        return self._running.model

    @property
    def scripted(self) -> Scripted:
        """The backend of the only model, which must have `option.rolling_batch=scripted`."""
        return self._running.scripted

    def post(
        self, path: str, payload: object = None, *, data: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """POST the payload as JSON, or the data unchanged, and return the complete response."""
        return self._thread.run(self._running.post(path, payload, data=data, headers=headers))

    def get(self, path: str, *, headers: dict[str, str] | None = None) -> Answer:
        return self._thread.run(self._running.get(path, headers=headers))

    def pieces(self, path: str, payload: object, *, headers: dict[str, str] | None = None) -> Iterator[bytes]:
        """POST the payload as JSON and yield the body as it arrives; closing the iterator disconnects."""
        return self._thread.iterate(self._running.pieces(path, payload, headers=headers))


@contextmanager
def plain_server(directory: Path, plugins: Sequence[object] = (), *, grpc: bool = False) -> Iterator[PlainServer]:
    """Run a server on a free port, for plain fixtures with a wider scope than `serve`."""
    thread = LoopThread("test server")
    try:
        server = running_server(directory, plugins, grpc=grpc)
        running = thread.run(server.__aenter__())
        try:
            yield PlainServer(running, thread)
        finally:
            thread.run(server.__aexit__(None, None, None))
    finally:
        thread.close()
