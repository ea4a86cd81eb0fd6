"""The client's side of a process that compiles guides."""

import logging
import socket
import threading
from contextlib import suppress

from lmi_core.errors import GenerationFailed, InvalidParameter
from lmi_core.workers.fork_client import ForkServerProcess
from lmi_core.workers.fork_messages import receive, send
from lmi_plugins.torch_engine.guides.isolated.compile_protocol import (
    Compiled,
    Ended,
    Engine,
    Exceeded,
    Job,
    Mistake,
    decode_outcome,
    encode,
)
from lmi_plugins.torch_engine.messages.guide_limits import GuideLimits
from lmi_plugins.torch_engine.messages.requests import Guide

logger = logging.getLogger(__name__)

SERVER = "lmi_plugins.torch_engine.guides.isolated.compile_server"
ATTEMPTS = 2  # for a guide whose process ended by nothing that the guide did


class CompileProcess:
    """A process that is started with the first guide, and restarted if it dies. Use it from any thread."""

    def __init__(self, tokenizer: bytes, limits: GuideLimits, engine: Engine = "torch") -> None:
        """`tokenizer`: xgrammar's TokenizerInfo, serialized; `engine`: whose grammars, for vLLM tried out only."""
        self._tokenizer = tokenizer
        self._limits = limits
        self._engine = engine
        self._lock = threading.Lock()
        self._server: ForkServerProcess | None = None
        self._stopped = False

    @property
    def process_id(self) -> int | None:
        """The process id, for those who watch or test it."""
        return None if self._server is None else self._server.process_id

    def compile(self, guide: Guide, cancellation: "Cancellation", engine: Engine | None = None) -> str:
        """Return the grammar of a guide as xgrammar serializes it, for vLLM "".

        `engine`: another than that of the other guides.
        Raise InvalidParameter for a wrong guide, or one that takes too much; GenerationFailed where compiling it
        failed otherwise.
        """
        job = encode(Job(guide, self._limits, engine or self._engine))
        for _ in range(ATTEMPTS):
            server = self._started()
            answer = _ask(server, job, cancellation)
            if answer is not None:
                return self._grammar(guide, answer)
            if cancellation.cancelled or self._stopped:
                break
            self._lose(server)
        raise GenerationFailed(f"`guided_{guide.kind}` could not be compiled: its process was ended")

    def stop(self) -> None:
        """End the process, and with it whatever it works on; no guide is compiled any more."""
        with self._lock:
            self._stopped = True
            if self._server is not None:
                self._server.kill()
                self._server = None

    def _started(self) -> ForkServerProcess:
        with self._lock:
            if self._stopped:
                raise GenerationFailed("the process that compiles guides was stopped")
            if self._server is None:
                self._server = ForkServerProcess(SERVER)
                with suppress(ConnectionError):  # it has died, which is seen at the first guide
                    send(self._server.control, self._tokenizer)
            return self._server

    def _lose(self, server: ForkServerProcess) -> None:
        """Forget a process that has died, or is about to."""
        with self._lock:
            if self._server is server:
                logger.warning("The process that compiles guides has died, and is started again")
                self._server = None
        server.kill()

    def _grammar(self, guide: Guide, answer: bytes) -> str:
        match decode_outcome(answer):
            case Compiled(grammar):
                return grammar
            case Mistake(message):
                raise InvalidParameter(f"`guided_{guide.kind}` cannot be used: {message}")
            case Exceeded(limit):
                raise too_costly(guide, limit, self._limits)
            case Ended(reason):
                raise GenerationFailed(f"`guided_{guide.kind}` could not be compiled: {reason}")


def _ask(server: ForkServerProcess, job: bytes, cancellation: "Cancellation") -> bytes | None:
    """Send a guide to be compiled; return None if the process has died, or if the request was cancelled."""
    try:
        connection = server.connect()
    except OSError:  # it has died, or another thread has seen that it has
        return None
    with connection, cancellation.of(connection):
        try:
            send(connection, job)
        except OSError:
            return None
        return receive(connection)


class Cancellation:
    """A way for one thread to end the compiling that another one waits for."""

    def __init__(self) -> None:
        self.cancelled = False
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def cancel(self) -> None:
        """End the compiling, whether it has begun or not."""
        with self._lock:
            self.cancelled = True
            if self._connection is not None:
                with suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

    def of(self, connection: socket.socket) -> "_Cancellable":
        """Return a context in which a connection ends with this."""
        return _Cancellable(self, connection)

    def watch(self, connection: socket.socket | None) -> None:
        with self._lock:
            self._connection = connection
            if self.cancelled and connection is not None:
                connection.shutdown(socket.SHUT_RDWR)


class _Cancellable:
    def __init__(self, cancellation: Cancellation, connection: socket.socket) -> None:
        self._cancellation, self._connection = cancellation, connection

    def __enter__(self) -> None:
        self._cancellation.watch(self._connection)

    def __exit__(self, *_: object) -> None:
        self._cancellation.watch(None)


def too_costly(guide: Guide, limit: str, limits: GuideLimits) -> InvalidParameter:
    """Return the error for a guide that exceeds a limit."""
    reasons = {
        "size": f"must have at most {limits.size} characters, with its bounded repetitions written out",
        "compile_seconds": f"must compile within {limits.compile_seconds} seconds of CPU time",
        "memory": f"must compile within {limits.memory // 2**20} MiB of memory",
        "mask_seconds": "must need at most "
        f"{limits.mask_seconds * 1000:g} ms of CPU time to tell the tokens that may come next",
    }
    return InvalidParameter(f"`guided_{guide.kind}` {reasons[limit]}: simplify it, or repeat less in it")
