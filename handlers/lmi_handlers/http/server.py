"""The server's life cycle: listen, load the models, serve, and shut down once requests in flight have finished."""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from lmi_core.handler import Handler
from lmi_core.logs.progress_display import show_progress
from lmi_core.plugins.registry import Registry
from lmi_core.registry.dispatcher import Dispatcher
from lmi_handlers.access.control import AccessControl
from lmi_handlers.access.options import ListenAddress, Scope, watch
from lmi_handlers.http.application import create_application
from lmi_handlers.http.connections.limits import DEFAULT_LIMITS, ConnectionLimits
from lmi_handlers.http.listener import HttpListener
from lmi_handlers.process.front import Front
from lmi_handlers.process.signals import INIT, Signals, reap_adopted

logger = logging.getLogger(__name__)

MANAGEMENT_SHARE = 16  # connections to the management address are limited to a sixteenth of the total
PAGES = "pages"  # the handler of the HTML pages


class Listener(Protocol):
    """A server of another protocol than HTTP."""

    @property
    def address(self) -> str: ...

    async def listen(self) -> None:
        """Start listening. Raise ConfigurationError if the address is in use or unavailable."""

    async def stop(self) -> None: ...


class Server:
    """The HTTP server. It listens before the models are loaded, so that `/ping` can report their state, unless others
    already serve on its port.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        handlers: Registry[Handler],
        host: str,
        port: int,
        others: Sequence[Listener] = (),
        limits: ConnectionLimits = DEFAULT_LIMITS,
        access: AccessControl | None = None,
        front: Front | None = None,
    ) -> None:
        """`front` is None if no other server shares the address."""
        self.dispatcher = dispatcher
        self.joins = front is not None and front.joins
        self.access = AccessControl(dispatcher) if access is None else access
        self.others = others
        self.has_pages = PAGES in handlers
        options = self.access.options
        self.management: HttpListener | None = None
        scope = Scope.ALL
        if (address := options.management_address) is not None:
            scope = Scope.INFERENCE
            of_management, limits = limits.split(MANAGEMENT_SHARE)
            operators = self.access.for_scope(Scope.MANAGEMENT)
            managing = partial(create_application, dispatcher, handlers, address.host or None, access=operators)
            if front is None or front.is_main:
                self.management = HttpListener(address, managing, of_management, options.certificate)
        inferring = partial(create_application, dispatcher, handlers, host, access=self.access.for_scope(scope))
        listening = ListenAddress(host, port, is_secure=options.certificate is not None)
        self._inference = HttpListener(listening, inferring, limits, options.certificate, front)
        self._watch: asyncio.Task[None] | None = None

    @property
    def host(self) -> str:
        return self._inference.listening.host

    @property
    def port(self) -> int:
        """The port, or the one that `listen` chose if it was 0."""
        return self._inference.listening.port

    @property
    def url(self) -> str:
        return self._inference.address

    @property
    def _listeners(self) -> list[Listener]:
        return [self._inference, *([self.management] if self.management is not None else []), *self.others]

    async def listen(self) -> None:
        """Start listening. Raise ConfigurationError if an address is in use or unavailable."""
        for each in self._listeners:
            await each.listen()
        self._watch = asyncio.create_task(watch(self.access.options.watched))

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for each in reversed(self._listeners):
            await each.stop()
        await self.dispatcher.stop()


async def serve(server: Server, drain_seconds: float, on_ready: Callable[[], None], signals: Signals) -> None:
    """Serve until a signal; then let requests finish for `drain_seconds`, or until a second signal, and end the rest.

    Raise BackendGivenUp if an engine crashed more often than retry_threshold allows.
    """
    dispatcher = server.dispatcher
    reaping = asyncio.create_task(reap_adopted()) if os.getpid() == INIT else None
    try:
        if not server.joins:
            await server.listen()
        with show_progress({name: model.progress for name, model in dispatcher.models.items()}):
            loaded = await signals.interrupt(dispatcher.start())
        if not loaded:
            logger.info("shutting down before the models are loaded")
            return
        if server.joins:
            await server.listen()
        on_ready()
        await signals.interrupt(dispatcher.wait_given_up())
        logger.info(
            "shutting down: running requests (%d) have %g s to finish; a second signal ends them",
            dispatcher.in_flight,
            drain_seconds,
        )
        await signals.interrupt(dispatcher.drain(drain_seconds))
        await signals.interrupt(dispatcher.end_requests())
    finally:
        signals.end_at_next()
        await server.stop()
        if reaping is not None:
            reaping.cancel()
