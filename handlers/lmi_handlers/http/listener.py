"""One address at which the server listens for HTTP."""

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from lmi_core.errors import ConfigurationError
from lmi_handlers.access.certificate import Certificate
from lmi_handlers.access.options import ListenAddress
from lmi_handlers.http.connections.connections import Connections
from lmi_handlers.http.connections.limits import ConnectionLimits
from lmi_handlers.process.front import Front

LINGERING = 10  # seconds for reading the rest of a refused body, so that the client gets the response
BACKLOG = 4096  # connections that the kernel queues until the server accepts them; the kernel has its own limit
FOR_THE_OWNER = 0o177  # umask of a Unix socket: only its owner can connect

NewApplication = Callable[[Connections], web.Application]


def brief(record: logging.LogRecord) -> bool:
    """Shorten log records about malformed HTTP, which is the client's fault, to one line at level INFO."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, (HttpProcessingError, web.RequestPayloadError)):
        record.exc_info = None
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        record.msg, record.args = f"{record.getMessage()}: {' '.join(str(error).split())}", ()
    return True


class HttpListener:
    """An address, the application behind it, and the connections to it."""

    def __init__(
        self,
        asked: ListenAddress,
        new_application: NewApplication,
        limits: ConnectionLimits,
        certificate: Certificate | None = None,
        front: Front | None = None,
    ) -> None:
        """Create a listener for an address; a secure one uses TLS, which needs the certificate.

        `front` is a front end that shares the address with others.
        """
        self._front = front
        self._context = certificate.context if certificate is not None and asked.is_secure else None
        self._handshake_timeout = None if self._context is None else limits.header_timeout
        self.listening = asked  # with the port chosen in `listen`, if it was 0
        http_logger = logging.getLogger("aiohttp.server")
        http_logger.addFilter(brief)
        self._connections = Connections(limits)
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.Task[None] | None = None
        self._runner = web.AppRunner(
            new_application(self._connections),
            handler_cancellation=True,  # a client that disconnects cancels its request, which aborts generation
            access_log=None,
            auto_decompress=False,  # it would decompress on the event loop
            logger=http_logger,
            # Longer than the server's own check, which closes connections first
            keepalive_timeout=2 * max(limits.keep_alive_timeout, limits.header_timeout),
            lingering_time=min(LINGERING, limits.body_timeout),
            shutdown_timeout=1,
        )

    @property
    def address(self) -> str:
        if self.listening.path is not None:
            return str(self.listening)
        return f"{'http' if self._context is None else 'https'}://{self.listening}"

    async def listen(self) -> None:
        """Start listening. Raise ConfigurationError if the address is in use or unavailable."""
        await self._runner.setup()
        assert self._runner.server is not None
        accept = partial(self._connections.accept, self._runner.server)
        try:
            self._server = await self._listen(accept)
        except OSError as error:
            await self._runner.cleanup()
            reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            choice = "management_address" if self.listening.path else "--host and --port"
            raise ConfigurationError(f"cannot listen on {self.listening}: {reason}. Choose with {choice}") from None
        if self.listening.path is None:
            self.listening = self.listening._replace(port=self._server.sockets[0].getsockname()[1])
        self._sweep = asyncio.get_running_loop().create_task(self._connections.sweep())

    async def _listen(self, accept: Callable[[], asyncio.Protocol]) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        if self.listening.path is None:
            host, port = self.listening.host, self.listening.port
            if self._front is not None and not self._front.joins:  # another server must not share the port unnoticed
                probe = await loop.create_server(accept, host, port)
                port = probe.sockets[0].getsockname()[1]
                probe.close()
                await probe.wait_closed()
            return await loop.create_server(
                accept,
                host,
                port,
                backlog=BACKLOG,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_timeout,
                reuse_port=self._front is not None,
            )
        return await loop.create_unix_server(accept, sock=_unix_socket(self.listening.path), backlog=BACKLOG)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            if self.listening.path is not None:
                Path(self.listening.path).unlink(missing_ok=True)
        if self._sweep is not None:
            self._sweep.cancel()
        await self._runner.cleanup()


def _unix_socket(path: str) -> socket.socket:
    """Return a socket bound to a path, replacing one that a dead server has left there. Raise OSError if that fails."""
    _remove_left(path)
    bound = socket.socket(socket.AF_UNIX)
    mask = os.umask(FOR_THE_OWNER)
    try:
        bound.bind(path)
    except OSError:
        bound.close()
        raise
    finally:
        os.umask(mask)
    return bound


def _remove_left(path: str) -> None:
    """Remove the socket of a dead server; keep one that answers."""
    with contextlib.suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as probe:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
