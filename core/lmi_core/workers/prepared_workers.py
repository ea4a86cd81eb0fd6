"""Workers that are forked from a process that has imported their modules: they start in milliseconds, and share memory.

`python -m lmi_core.workers.prepared_workers PREPARE DESCRIPTOR` runs that process.
"""

import importlib
import os
import pickle
import select
import signal
import socket
import sys
import threading
import traceback
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import NoReturn

from lmi_core.forks.fork_client import ForkServerProcess, connect
from lmi_core.forks.fork_server import Fork, ForkServer, inherited_socket, send, take_over
from lmi_core.host.devices import visible_gpus
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE, MODEL_VARIABLE, configure_logging_of_another_program, flush_log
from lmi_core.workers import worker

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
FORK_SECONDS = 5.0  # after which a fork server that has already forked counts as frozen
OF_TESTS = "PYTEST_"  # prefix of variables that change with each test, and that workers do not read


# By the modules that they import, with their environments
_servers: dict[str, tuple[dict[str, str], ForkServerProcess]] = {}
_lock = threading.Lock()


class PreparedWorker:
    """A forked worker with the interface of `subprocess.Popen` that is used here."""

    def __init__(self, prepare: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        """Fork a worker, after its modules are imported, and call its `main`. Raise OSError if it cannot be started."""
        self.returncode: int | None = None
        self._server = fork_server_for(prepare, environment)  # keeps the fork server alive
        reading, writing = os.pipe()
        self.stdin = open(writing, "wb", buffering=0)  # noqa: SIM115 -- closed by whoever uses it
        with ExitStack() as on_failure:
            on_failure.enter_context(self.stdin)
            try:
                self._connection = connect(self._server.control, reading, STANDARD_OUTPUT, STANDARD_ERROR)
            finally:
                os.close(reading)
            on_failure.enter_context(self._connection)
            self._connection.settimeout(FORK_SECONDS if self._server.ready else None)
            self._answers = on_failure.enter_context(self._connection.makefile("rb"))
            send(self._connection, (arguments, dict(environment), os.getcwd()))
            self.pid = self._read_process_id()
            self._pid_descriptor = os.pidfd_open(self.pid)
            weakref.finalize(self, os.close, self._pid_descriptor)
            self._server.ready = True
            on_failure.pop_all()

    def _read_process_id(self) -> int:
        """Return the process id of the started worker."""
        try:
            started: int | str = pickle.load(self._answers)
        except TimeoutError:
            self._server.kill()
            raise OSError("its fork server did not answer, and was killed") from None
        except (EOFError, OSError):
            raise OSError("its fork server has ended") from None
        if isinstance(started, str):
            raise OSError(started)
        return started

    def kill(self) -> None:
        """End the worker at once, if it has not ended."""
        with suppress(OSError):
            signal.pidfd_send_signal(self._pid_descriptor, signal.SIGKILL)

    def wait(self) -> int:
        """Wait until the worker has ended, and return its exit code, which is negative for a signal."""
        ended = select.poll()
        ended.register(self._pid_descriptor, select.POLLIN)
        ended.poll()
        self._connection.settimeout(FORK_SECONDS)
        self.returncode = -signal.SIGKILL
        with self._connection, self._answers, suppress(EOFError, OSError):
            self.returncode = pickle.load(self._answers)
        return self.returncode


def can_prepare() -> bool:
    """Return whether workers can be forked: this is only safe on Linux, and without a loaded GPU driver."""
    return sys.platform == "linux" and visible_gpus() == 0


def fork_server_for(prepare: str, environment: Mapping[str, str]) -> ForkServerProcess:
    """Return the fork server for workers that `prepare` ("package.module:function") prepares, and start it if needed.

    It keeps running for later workers, of any model. Each environment needs its own server, because modules read it
    when imported.
    """
    environment = {name: value for name, value in environment.items() if name != MODEL_VARIABLE}
    read = {name: value for name, value in environment.items() if not name.startswith(OF_TESTS)}
    with _lock:
        known, server = _servers.get(prepare, (None, None))
        if server is None or known != read or not server.runs:
            server = ForkServerProcess(__name__, prepare, environment=environment)
            _servers[prepare] = (read, server)
        return server


def discard(prepare: str) -> None:
    """End a fork server that has no workers."""
    with _lock:
        _, server = _servers.pop(prepare)
    server.kill()


class WorkerForks(ForkServer):
    """The server's side of forked workers."""

    def run(self, connection: socket.socket, descriptors: list[int]) -> NoReturn:
        status = 1
        try:
            with connection:
                arguments = take_over(connection, descriptors)
            worker.main(*arguments)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            flush_log()
            os._exit(status)

    def on_start(self, fork: Fork) -> None:
        send(fork.connection, fork.process_id)

    def on_start_failed(self, connection: socket.socket, error: OSError) -> None:
        send(connection, str(error))

    def on_end(self, connection: socket.socket, code: int) -> None:
        send(connection, code)


def main(prepare: str, descriptor: str) -> None:
    """Prepare, then fork workers for the client at the other end of an inherited socket pair."""
    control = inherited_socket(descriptor)
    configure_logging_of_another_program(os.environ.get(LOG_LEVEL_VARIABLE, "info"))
    module, _, name = prepare.partition(":")
    getattr(importlib.import_module(module), name)()
    WorkerForks(control).serve()
    os._exit(0)  # skips the teardown of libraries, which would log leaks; workers do the same


if __name__ == "__main__":
    main(*sys.argv[1:])
