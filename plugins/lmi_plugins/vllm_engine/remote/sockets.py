"""The encryption of vLLM's own sockets between machines, which vLLM leaves open to everybody in the network."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import zmq
from vllm.utils import network_utils
from vllm.v1.engine import core, core_client, utils

from lmi_core.workers.channel import Keys
from lmi_plugins.vllm_engine.processes import run_core

_vllm_socket = network_utils.make_zmq_socket
_vllm_meeting = utils.zmq_socket_ctx


class CoreSockets:
    """The server's sockets for one core on another machine, which knows their keys."""

    def __init__(self, host: str) -> None:
        """The sockets accept connections at an address of this host."""
        own, theirs = Keys.new(), Keys.new()
        self._keys = own
        self._host = host
        self.keys = Keys(theirs.public, theirs.secret, own.public)  # the core's
        self.address: Future[str] = Future()  # where the core reports that it has started
        self._is_interrupted = False

    @contextmanager
    def used(self) -> Iterator[None]:
        """Let vLLM use these sockets in the context, for a client that is created in this thread."""
        token = _used.set(self)
        try:
            yield
        finally:
            _used.reset(token)

    def prepare(self, socket: "zmq.Socket[Any]") -> None:
        self._keys.serve(socket)

    @contextmanager
    def meeting(self) -> "Iterator[zmq.Socket[Any]]":
        """Create the socket to which the core reports, at a free port."""
        context = zmq.Context()
        try:
            self._check_goes_on()
            socket = context.socket(zmq.ROUTER)
            self.prepare(socket)
            self.address.set_result(f"tcp://{self._host}:{socket.bind_to_random_port(f'tcp://{self._host}')}")
            self._check_goes_on()  # `interrupt` may have come before there was an address
            yield socket
        finally:
            context.destroy(linger=0)

    def _check_goes_on(self) -> None:
        if self._is_interrupted:
            raise RuntimeError("the core has ended")

    def interrupt(self) -> None:
        """Make vLLM's client stop waiting for a core that has ended: an unknown one reports to it."""
        self._is_interrupted = True
        if not self.address.done():
            return
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            self.keys.use(socket)
            socket.linger = 1000  # milliseconds
            socket.connect(self.address.result())
            socket.send(b"")


_used: ContextVar[CoreSockets | None] = ContextVar("_used", default=None)


class _Prepared:
    """ZeroMQ's context, as vLLM's function uses it, whose sockets are prepared for encryption."""

    def __init__(self, context: "zmq.Context[Any]", prepare: "Callable[[zmq.Socket[Any]], None]") -> None:
        self._context = context
        self._prepare = prepare

    def socket(self, kind: int) -> "zmq.Socket[Any]":
        socket: zmq.Socket[Any] = self._context.socket(kind)
        self._prepare(socket)
        return socket


def _server_socket(context: "zmq.Context[Any]", path: str, *arguments: Any, **named: Any) -> Any:
    sockets = _used.get()
    prepared: Any = context if sockets is None else _Prepared(context, sockets.prepare)
    return _vllm_socket(prepared, path, *arguments, **named)


def _server_meeting(*arguments: Any, **named: Any) -> Any:
    sockets = _used.get()
    return _vllm_meeting(*arguments, **named) if sockets is None else sockets.meeting()


core_client.make_zmq_socket = _server_socket
utils.zmq_socket_ctx = _server_meeting


def run_core_with(keys: Keys, *arguments: Any, **options: Any) -> None:
    """Run a core as `run_core` does, in its process, with the keys of the server's sockets."""

    def socket(context: "zmq.Context[Any]", *arguments: Any, **named: Any) -> Any:
        prepared: Any = _Prepared(context, keys.use)
        return _vllm_socket(prepared, *arguments, **named)

    core.make_zmq_socket = socket
    run_core(*arguments, **options)
