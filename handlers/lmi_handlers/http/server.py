"""The server's life cycle: listen, load the models, serve, and shut down once requests in flight have finished."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from lmi_core.errors import ConfigurationError
from lmi_core.handler import Handler
from lmi_core.plugins.registry import Registry
from lmi_core.serving.dispatcher import Dispatcher
from lmi_handlers.http.application import create_application

logger = logging.getLogger(__name__)


def brief(record: logging.LogRecord) -> bool:
    """Filter log records: reduce those about malformed HTTP, the client's fault, to one line at level INFO."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, (HttpProcessingError, web.RequestPayloadError)):
        record.exc_info = None
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        record.msg, record.args = f"{record.getMessage()}: {' '.join(str(error).split())}", ()
    return True


class Listener(Protocol):
    """A server of another protocol, beside the one of HTTP."""

    @property
    def address(self) -> str: ...

    async def listen(self) -> None:
        """Start to listen. Raise ConfigurationError where the address is in use or not available."""

    async def stop(self) -> None: ...


class Server:
    """The HTTP server; it listens before the models are loaded, so that `/ping` can report that they are not."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        handlers: Registry[Handler],
        host: str,
        port: int,
        others: Sequence[Listener] = (),
    ) -> None:
        self.dispatcher = dispatcher
        self.host = host
        self.port = port  # replaced by the port taken in `listen`, if 0
        self.others = others
        http_logger = logging.getLogger("aiohttp.server")
        http_logger.addFilter(brief)
        self._runner = web.AppRunner(
            create_application(dispatcher, handlers, host),
            handler_cancellation=True,  # a client that disconnects cancels its request, which aborts generation
            access_log=None,
            logger=http_logger,
            shutdown_timeout=1,
        )

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def listen(self) -> None:
        """Start to listen. Raise ConfigurationError where the address is in use or not available."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.host, self.port).start()
        except OSError as error:
            await self._runner.cleanup()
            reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise ConfigurationError(
                f"cannot listen on {self.host}:{self.port}: {reason}. Choose with --host and --port"
            ) from None
        self.port = self._runner.addresses[0][1]
        for other in self.others:
            await other.listen()

    async def stop(self) -> None:
        for other in self.others:
            await other.stop()
        await self._runner.cleanup()
        await self.dispatcher.stop()


async def serve(server: Server, drain_seconds: float, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT; then let requests finish for `drain_seconds`, or until a second signal.

    Raise BackendGivenUp where an engine crashed more often than retry_threshold allows.
    """
    signals = Signals()
    try:
        await server.listen()
        if not await signals.interrupt(server.dispatcher.start()):
            return
        on_ready()
        await signals.interrupt(server.dispatcher.wait_given_up())
        logger.info("shutting down: %d requests have %g s to finish", server.dispatcher.in_flight, drain_seconds)
        await signals.interrupt(server.dispatcher.drain(drain_seconds))
    finally:
        await server.stop()


class Signals:
    """SIGTERM and SIGINT, awaited one after the other."""

    def __init__(self) -> None:
        self._received: asyncio.Queue[signal.Signals] = asyncio.Queue()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._received.put_nowait, number)

    async def next(self) -> None:
        await self._received.get()

    async def interrupt(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run the work, cancel it at a signal, and return whether it was completed."""
        task, stop = asyncio.create_task(work), asyncio.create_task(self.next())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if task.done():
            task.result()
            return True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False
