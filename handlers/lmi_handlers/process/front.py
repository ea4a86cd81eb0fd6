"""A front end: one of several servers on a port, which share the engines (`lmi serve --servers`)."""

import os
import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from lmi_core.workers.shared_worker import Ready, host_of_this_process
from lmi_handlers.process.lifetime import FRONT_VARIABLE

UNCHANGEABLE = (
    "several front ends share the engines (--servers), so models, adapters and the log level cannot be changed while "
    "the server runs: restart it with the change"
)
# Appended to messages about resources that each front end needs for itself
ELSEWHERE = ", or another front end has it (--servers)"


class Front(msgspec.Struct, frozen=True):
    """The number of a front end, from 0, the total number, and the port."""

    number: int
    total: int
    port: int | None = None  # None: this front end is the first to listen, and must be alone on its port

    @property
    def joins(self) -> bool:
        """Whether other front ends already serve, so that this one listens only when it is ready."""
        return self.port is not None

    @property
    def is_main(self) -> bool:
        """Whether this front end serves the addresses that only one can have: those of management and gRPC."""
        return self.number == 0

    @property
    def folder(self) -> Path:
        """The folder of the front ends' own sockets."""
        host = host_of_this_process()
        assert host is not None
        return host.parent

    def announce(self, port: int, welcome: Sequence[str]) -> None:
        """Report to the parent that the models are loaded."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(host_of_this_process()))
            connection.sendall(msgspec.json.encode(Ready(self.number, port, list(welcome))) + b"\n")


def elsewhere() -> str:
    """Return an additional reason why something may not be found, if there are other front ends."""
    return "" if this_front() is None else ELSEWHERE


@cache
def this_front() -> Front | None:
    """Return which front end this process is; None if it is the only server."""
    text = os.environ.get(FRONT_VARIABLE)
    return None if text is None else msgspec.json.decode(text, type=Front)
