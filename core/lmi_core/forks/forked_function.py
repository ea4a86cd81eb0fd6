"""A function in a separate process, which runs each call in a fork, within limits enforced by the system."""

import logging
import math
import os
import pickle
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal, NoReturn

from lmi_core.errors import GenerationFailed
from lmi_core.forks.fork_client import ForkServerProcess, connect

logger = logging.getLogger(__name__)

ORIGIN = "lmi_core.forks.calls"
MAX_MEMORY = 4 * 2**30  # bytes
ATTEMPTS = 2  # if the process dies through no fault of the call

_origin: ForkServerProcess | None = None  # shared by all functions of this process
_starting = threading.Lock()


class CallFailedError(Exception):
    """The error of a function in another process: its message, or its type without a message."""


class CallTooCostlyError(CallFailedError):
    """A call exceeds its time or memory."""

    def __init__(self, message: str, limit: Literal["seconds", "memory"]) -> None:
        super().__init__(message)
        self.limit = limit


class CallEndedError(CallFailedError):
    """The process of a call has crashed."""

    def __init__(self, code: int) -> None:
        """`code` is the exit code of the process, negative for a signal."""
        super().__init__(f"its process ended with {'signal' if code < 0 else 'exit code'} {abs(code)}")
        self.code = code


class Cancellation:
    """A way for one thread to end a call that another one waits for."""

    def __init__(self) -> None:
        self.cancelled = False
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None

    def cancel(self) -> None:
        """End the call, whether it has started or not."""
        with self._lock:
            self.cancelled = True
            self._disconnect()

    @contextmanager
    def ending(self, connection: socket.socket) -> Iterator[None]:
        """Set the connection whose closing ends the call."""
        with self._lock:
            self._connection = connection
            if self.cancelled:
                self._disconnect()
        try:
            yield
        finally:
            with self._lock:
                self._connection = None

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)


class ForkedFunction:
    """A function in a process that starts with the first call, and again if it dies. Use it from any thread."""

    def __init__(self, factory: str, argument: Callable[[], Any] = str, patience: float = math.inf) -> None:
        """`factory`, as `module:name`, is called in the process with the result of `argument`; it returns the function.
        A call continues at the lowest priority after `patience` seconds.
        """
        self._factory, self._argument, self._patience = factory, argument, patience
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._stopped = False

    def call(
        self,
        seconds: float,
        *arguments: Any,
        memory: int = MAX_MEMORY,
        cancellation: Cancellation | None = None,
        descriptors: Sequence[int] = (),
    ) -> Any:
        """Call the function within seconds of CPU time and bytes of memory, and return its result.

        Its last arguments are its own copies of the file descriptors, through which large results cost less.
        Raise CallFailedError, CallTooCostlyError or CallEndedError; raise GenerationFailed if the call was cancelled,
        or if no process could be started, which is not the call's fault.
        """
        cancellation = cancellation or Cancellation()
        for _ in range(ATTEMPTS):
            process = self._running_process()
            answer = process.call((seconds, memory, arguments), cancellation, descriptors)
            if answer is not None:
                return _result(answer, seconds)
            if cancellation.cancelled or self._stopped:
                break
            self._lose(process)
        raise _ended_error()

    def stop(self) -> None:
        """End the process and its calls; later calls raise GenerationFailed."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.close()

    def _running_process(self) -> "_Process":
        with self._lock:
            if self._stopped:
                raise _ended_error()
            if self._process is None:
                try:
                    self._process = _Process((sys.path, self._factory, self._patience), self._argument)
                except OSError as error:  # too many processes or descriptors, or too little memory
                    raise _start_error(error) from None
            return self._process

    def _lose(self, process: "_Process") -> None:
        """Drop a process that has died, or is about to."""
        with self._lock:
            if self._process is process:
                logger.warning("the process of %s has died and is being restarted", self._factory)
                self._process = None
        process.close()


class _Process:
    """The process of a function, which ends with this object."""

    def __init__(self, preparation: tuple[Any, ...], argument: Callable[[], Any]) -> None:
        """Start preparing the function; `argument` is called while the process imports its modules."""
        server = origin()  # created first, because finalizers wait for this process to exit
        sockets = ExitStack()
        self.close = weakref.finalize(self, sockets.close)
        own, passed = socket.socketpair()
        self._control = sockets.enter_context(own)
        connection = None
        with passed, suppress(OSError):  # the origin has died; the call will report it
            connection = sockets.enter_context(connect(server.control, passed.fileno()))
            _send(connection, preparation)
        given = argument()
        with suppress(OSError):
            if connection is not None:
                _send(connection, given)

    def call(
        self, message: tuple[Any, ...], cancellation: Cancellation, descriptors: Sequence[int]
    ) -> tuple[str, Any] | None:
        """Return the answer to a call; None if the process has died, or if the call was cancelled."""
        try:
            connection = connect(self._control, *descriptors)
        except OSError:
            return None
        with connection, cancellation.ending(connection), connection.makefile("rb") as answers:
            with suppress(OSError):  # it may have sent a result nevertheless
                _send(connection, message)
            try:
                answer: tuple[str, Any] = _Answers(answers).load()
            except (EOFError, OSError, pickle.UnpicklingError):
                return None
            return answer


class _Answers(pickle.Unpickler):
    """An unpickler of plain values: a process that works on a client's text must not choose what runs here."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")


def origin() -> ForkServerProcess:
    """Return the small process from which functions are forked, starting it if necessary.

    Starting a process blocks all threads, so a server does this before it accepts requests.
    """
    global _origin
    with _starting:
        if _origin is None or not _origin.runs:
            _origin = ForkServerProcess(ORIGIN, environment={**os.environ, "TOKENIZERS_PARALLELISM": "false"})
        return _origin


def _send(connection: socket.socket, message: Any) -> None:
    """Send a message without copying its long texts, which would block other threads."""
    with connection.makefile("wb") as stream:
        pickle.dump(message, stream, pickle.HIGHEST_PROTOCOL)


def _result(answer: tuple[str, Any], seconds: float) -> Any:
    match answer:
        case "result", value:
            return value
        case "error", message:
            raise CallFailedError(message)
        case "memory", memory:
            raise CallTooCostlyError(f"it takes more than {memory / 2**30:g} GiB of memory", "memory")
        case "unstarted", reason:
            raise _start_error(reason)
        case _, code if code == -signal.SIGKILL:
            raise _ended_error()  # killed by the system for lack of memory, or by an administrator
        case _, code if code == -signal.SIGPROF:
            raise CallTooCostlyError(f"it takes more than {seconds:g} seconds", "seconds")
        case _, code:
            raise CallEndedError(code)


def _ended_error() -> GenerationFailed:
    return GenerationFailed("A process that worked for this request was ended")


def _start_error(reason: object) -> GenerationFailed:
    return GenerationFailed(f"A process for this request could not be started: {reason}")
