"""The client's side of a fork server."""

import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence

from lmi_core.logs.logs import error_stream_of_children

PASSED = b"s"  # the byte that accompanies descriptors
STOP_SECONDS = 5.0  # after which a server that does not exit is killed


class ForkServerProcess:
    """A running fork server, which ends with this object. Use it from any thread."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Run a module, whose last argument is the descriptor of its control socket."""
        self.control, inherited = socket.socketpair()
        with inherited:
            self._process = run_module(module, arguments, inherited.fileno(), environment)
        self.ready = False  # whether it has responded
        self.close = weakref.finalize(self, _end, self.control, self._process)

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End the server and its forks at once."""
        self._process.kill()
        self.close()


def run_module(
    module: str, arguments: Sequence[str], descriptor: int, environment: Mapping[str, str] | None
) -> "subprocess.Popen[bytes]":
    """Run a module that inherits a descriptor, which is its last argument."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments, str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stderr=error_stream_of_children(),
        env=environment,
        start_new_session=True,
    )


def connect(control: socket.socket, *descriptors: int) -> socket.socket:
    """Return the connection to a new fork of the server at the other end of a control socket, with these descriptors.

    Raise OSError if the server has ended.
    """
    own, passed = socket.socketpair()
    with passed:
        try:
            socket.send_fds(control, [PASSED], [passed.fileno(), *descriptors])
        except BaseException:
            own.close()
            raise
    return own


def _end(control: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    control.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
