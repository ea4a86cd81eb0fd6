"""A process that forks: it imports modules once, so that each process that is forked from it starts in milliseconds.

It runs no threads, as a fork would not have them. It ends when its client is gone and the last fork has ended.
"""

import ctypes
import os
import selectors
import signal
import socket
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from lmi_core.workers.fork_messages import receive

MAX_DESCRIPTORS = 4  # that come with a message
SIGNAL_OF_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG


@dataclass(eq=False)
class Fork:
    """A forked process."""

    process_id: int
    connection: socket.socket
    exited: int  # a pipe that ends with it
    begun: float = field(default_factory=time.monotonic)
    lowered: bool = False


class ForkServer(ABC):
    """The forks of this process, for one client, which passes a connection for each."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._forks: set[Fork] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    @abstractmethod
    def run(self, connection: socket.socket, message: bytes, descriptors: list[int]) -> NoReturn:
        """Run in the fork, with the client's message and further descriptors."""

    def begun(self, fork: Fork) -> None:  # noqa: B027 -- need not be overridden
        """Handle the start of a fork."""

    @abstractmethod
    def ended(self, connection: socket.socket, code: int) -> None:
        """Handle the end of a fork with an exit code, which is negative for a signal."""

    @abstractmethod
    def not_started(self, connection: socket.socket, error: OSError) -> None:
        """Handle a fork that could not be started."""

    def look(self, fork: Fork) -> None:  # noqa: B027 -- need not be overridden
        """Look at a running fork; called whenever something happened, and every `look_seconds`."""

    look_seconds: float | None = None

    def serve(self) -> None:
        """Fork for the client until it disconnects, then wait for the remaining forks."""
        accepts = True
        while accepts or self._forks:
            for key, _ in self._selector.select(self.look_seconds if self._forks else None):
                if key.data is None:
                    accepts = self._accept()
                elif key.data in self._forks:  # otherwise it was ended just now
                    self._heed(key.data, has_exited=key.fileobj == key.data.exited)
            for fork in self._forks:
                self.look(fork)

    def _accept(self) -> bool:
        """Start the next fork; return False if the client is gone."""
        passed, descriptors, _, _ = socket.recv_fds(self._control, 1, MAX_DESCRIPTORS)
        if not passed:
            self._selector.unregister(self._control)
            return False
        connection = socket.socket(fileno=descriptors[0])
        message = receive(connection)
        if message is None:  # given up at once
            connection.close()
        else:
            self._fork(connection, message, descriptors[1:])
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        return True

    def _fork(self, connection: socket.socket, message: bytes, descriptors: list[int]) -> None:
        reading, writing = os.pipe()
        try:
            process_id = os.fork()
        except OSError as error:  # there are too many processes, or there is too little memory
            os.close(reading)
            os.close(writing)
            with connection, suppress(OSError):
                self.not_started(connection, error)
            return
        if not process_id:
            os.close(reading)
            self._control.close()
            self._selector.close()
            for other in self._forks:  # whose clients would wait for this process too
                other.connection.close()
                os.close(other.exited)
            _die_with_parent()
            self.run(connection, message, descriptors)  # does not return
        os.close(writing)
        fork = Fork(process_id, connection, reading)
        self._forks.add(fork)
        self._selector.register(connection, selectors.EVENT_READ, fork)
        self._selector.register(reading, selectors.EVENT_READ, fork)
        with suppress(OSError):  # the client is gone
            self.begun(fork)

    def _heed(self, fork: Fork, *, has_exited: bool) -> None:
        """Wait for a fork that is about to end, or kill it because its client has disconnected."""
        if not has_exited:
            os.kill(fork.process_id, signal.SIGKILL)
        _, status = os.waitpid(fork.process_id, 0)
        self._forks.discard(fork)
        self._selector.unregister(fork.connection)
        self._selector.unregister(fork.exited)
        os.close(fork.exited)
        with fork.connection, suppress(OSError):
            self.ended(fork.connection, os.waitstatus_to_exitcode(status))


def inherited_socket(descriptor: str) -> socket.socket:
    """Return the control socket that this process has inherited, and leave the end of this process to its client."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # sent to every process of a service or a container
        signal.signal(number, signal.SIG_IGN)
    return socket.socket(fileno=int(descriptor))


def _die_with_parent() -> None:
    """Make the system kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)
