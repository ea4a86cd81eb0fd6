"""A process from which functions are forked: each prepares itself in a fork, from which its calls are forked.

It imports next to nothing, so that it takes little memory. Run it as a module, with the descriptor of its socket.
"""

import importlib
import os
import pickle
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from lmi_core.forks.fork_server import ForkServer, inherited_socket, send

STATUS = Path("/proc/self/status")
NO_MEMORY = "bad_alloc"  # C++'s name of the error, which appears in messages of its libraries


class Functions(ForkServer):
    """The processes that prepare functions."""

    def run(self, connection: socket.socket, descriptors: list[int]) -> NoReturn:
        try:
            with suppress(EOFError):  # the client has stopped waiting
                messages = connection.makefile("rb")
                sys.path[:], factory, patience = pickle.load(messages)
                module, _, name = factory.partition(":")
                prepare = getattr(importlib.import_module(module), name)
                # Not kept in a variable: it may take megabytes, for example for a tokenizer
                function = prepare(pickle.load(messages))
                Calls(socket.socket(fileno=descriptors[0]), function, patience).serve()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)


class Calls(ForkServer):
    """The calls of a function."""

    def __init__(self, control: socket.socket, function: Callable[..., Any], patience: float) -> None:
        super().__init__(control)
        self._function, self.patience = function, patience

    def run(self, connection: socket.socket, descriptors: list[int]) -> NoReturn:
        status = 1
        try:
            seconds, memory, arguments = pickle.load(connection.makefile("rb"))
            connection.sendall(self._answer(seconds, memory, (*arguments, *descriptors)))
            status = 0
        except (EOFError, OSError, pickle.UnpicklingError):  # the client has stopped waiting
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def on_start_failed(self, connection: socket.socket, error: OSError) -> None:
        send(connection, ("unstarted", str(error)))

    def on_end(self, connection: socket.socket, code: int) -> None:
        if code:  # otherwise, it has sent its result
            send(connection, ("ended", code))

    def _answer(self, seconds: float, memory: int, arguments: tuple[Any, ...]) -> bytes:
        """Call the function within limits, and return what to send."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if (data := _data_bytes()) is not None:
            most = data + memory if hard == resource.RLIM_INFINITY else min(data + memory, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the parent of the server may have ignored the signal
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            return pickle.dumps(("result", self._function(*arguments)), pickle.HIGHEST_PROTOCOL)
        except BaseException as error:  # including panics in Rust code
            resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))  # sending the result needs memory
            if isinstance(error, MemoryError) or NO_MEMORY in str(error):
                return pickle.dumps(("memory", memory))
            return pickle.dumps(("error", str(error) or type(error).__name__))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def _data_bytes() -> int | None:
    """Return the size of this process's data, as limited by the system; None if unknown."""
    with suppress(OSError):
        for line in STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return None


if __name__ == "__main__":
    Functions(inherited_socket(sys.argv[1])).serve()
