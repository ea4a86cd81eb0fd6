"""`lmi` in processes that are forked from one that has imported its modules, as importing them takes seconds each time.

`python -m tests.lmi_forks DESCRIPTOR` runs that process.
"""

import atexit
import gc
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

import psutil

from lmi_core.forks import fork_client
from lmi_core.forks.fork_client import PASSED, ForkServerProcess, connect, run_module
from lmi_core.forks.fork_server import ForkServer, inherited_socket, send, take_over
from lmi_core.workers import prepared_workers
from lmi_plugins.torch_engine.client.early import ENVIRONMENT as OF_WORKERS
from tests.command_lines import FORK_SERVER

ROOT = Path(__file__).parents[1]
LMI = Path(sys.executable).with_name("lmi")
ENVIRONMENT = dict(os.environ)
# What the interpreter and libraries read when they are started or imported; with other values, `lmi` is not forked.
EARLY = ("HF_", "HOME", "LD_PRELOAD", "OMP_", "PYTHON", "TRANSFORMERS_", "XDG_")
PATH_VARIABLE, SITE = "PYTHONPATH", "sitecustomize"  # which can be made up for
FIRST_DESCRIPTOR = 3  # after the standard streams
IMPORTED = (
    "lmi_handlers.cli.check_command",
    "lmi_handlers.cli.private_server",
    "lmi_handlers.cli.serving",
    "lmi_handlers.cli.try_command",
    "lmi_handlers.http.server",
    "lmi_plugins.torch_engine.worker.inspection",
    "lmi_plugins.torch_engine.worker.service",
    "transformers.models.llama.modeling_llama",
)


class LmiForks(ForkServer):
    """The forks of `lmi`."""

    def run(self, connection: socket.socket, descriptors: list[int]) -> NoReturn:
        arguments = take_over(connection, descriptors)
        tempfile.tempdir = None  # which the imports may have read from the environment
        _follow(os.environ.get(PATH_VARIABLE, ""))
        fork_client.run_module = Spare().run_module  # type: ignore[assignment]  # which has less than a Popen
        for signal_number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(signal_number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with connection:
            connection.sendall(b"%d\n" % os.getpid())  # from now on, signals have an effect
        sys.argv[:] = [str(LMI), *arguments]
        sys.modules["__main__"].__package__ = None  # which would be part of the program's name
        os._exit(_status())

    def on_end(self, connection: socket.socket, code: int) -> None:
        connection.sendall(b"%d\n" % code)


class Forked(psutil.Process):
    """A fork of this process, with the interface of `subprocess.Popen` that is used of fork servers."""

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        try:
            return super().wait(timeout)
        except psutil.TimeoutExpired:
            raise subprocess.TimeoutExpired([FORK_SERVER], timeout or 0) from None

    def kill(self) -> None:
        with suppress(psutil.NoSuchProcess):
            super().kill()


class Spare:
    """A fork of `lmi` that becomes the fork server of its first workers, and has imported all that this would import.

    It is forked before `lmi` has threads, whose locks nobody would release in it.
    """

    def __init__(self) -> None:
        self._channel, other = socket.socketpair()
        with other:
            process_id = os.fork()
            if not process_id:
                _become_fork_server(other)
        self._process = Forked(process_id)

    def run_module(
        self, module: str, arguments: Sequence[str], descriptor: int, environment: Mapping[str, str] | None
    ) -> "Forked | subprocess.Popen[bytes]":
        is_used = self._channel.fileno() < 0
        if is_used or module != prepared_workers.__name__:
            return run_module(module, arguments, descriptor, environment)
        with self._channel:
            socket.send_fds(self._channel, [PASSED], [descriptor])
            send(self._channel, (arguments, dict(environment or {}), os.getcwd()))
        return self._process


def _become_fork_server(channel: socket.socket) -> NoReturn:
    try:
        os.closerange(FIRST_DESCRIPTOR, channel.fileno())
        os.closerange(channel.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        _, descriptors, _, _ = socket.recv_fds(channel, 1, 1)
        if descriptors:
            Path("/proc/self/comm").write_text(FORK_SERVER)  # its command line is that of `lmi`
            (prepare,) = take_over(channel, [])
            prepared_workers.main(prepare, str(descriptors[0]))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _follow(path: str) -> None:
    """Look for modules where the interpreter would, had it been started with this path."""
    folders = [folder for folder in path.split(os.pathsep) if folder and folder not in sys.path]
    if folders:
        sys.path[:0] = folders
        sys.modules.pop(SITE, None)
        if importlib.util.find_spec(SITE) is not None:
            importlib.import_module(SITE)


def _status() -> int:
    """Run `lmi` and what Python runs at the end, but for the end of libraries, which then write of what they leak."""
    from lmi_handlers.cli.entry import main

    status = 0
    try:
        main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def can_fork(environment: Mapping[str, str]) -> bool:
    """Return whether a fork works as a process of its own would with this environment."""
    return _early(environment) == _early(ENVIRONMENT)


def fork_lmi(arguments: Sequence[object], environment: Mapping[str, str], *streams: int) -> socket.socket:
    """Return a connection on which a fork's process id comes, and when it has ended its exit code, each as a line.

    The fork has the standard streams that are given. It is killed when the connection is closed.
    """
    connection = connect(_server().control, *streams)
    send(connection, ([*map(str, arguments)], dict(environment), os.getcwd()))
    return connection


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(EARLY) and name != PATH_VARIABLE}


@cache
def _server() -> ForkServerProcess:
    path = os.pathsep.join(filter(None, (str(ROOT), ENVIRONMENT.get(PATH_VARIABLE))))
    return ForkServerProcess(__name__, environment=OF_WORKERS | ENVIRONMENT | {PATH_VARIABLE: path})


def main(descriptor: str) -> None:
    """Import what `lmi` may need, then fork for the client whose end of a socket pair this process has inherited."""
    control = inherited_socket(descriptor)
    for name in IMPORTED:
        importlib.import_module(name)
    from lmi_core.plugins.loading import load_plugins

    load_plugins()
    gc.freeze()  # looking through the imported modules would copy their memory in each fork
    LmiForks(control).serve()
    os._exit(0)  # as the forks do


if __name__ == "__main__":
    main(*sys.argv[1:])
