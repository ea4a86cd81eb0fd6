"""A process that forks: it imports modules once, so that processes forked from it start in milliseconds.

It runs no threads, because a fork would not inherit them. It ends when its client has disconnected and the last fork
has ended.
"""

import ctypes
import math
import os
import pickle
import select
import signal
import socket
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

MAX_DESCRIPTORS = 4  # passed with one connection
SIGNAL_OF_PARENTS_DEATH = 1  # PR_SET_PDEATHSIG
LOOK_SECONDS = 0.25  # between checks of forks whose priority may have to be lowered
LOWEST_PRIORITY = 10


@dataclass(eq=False)
class Fork:
    """A forked process."""

    process_id: int
    connection: socket.socket
    exited: int  # a pipe that closes when the fork exits
    begun: float = field(default_factory=time.monotonic)


class ForkServer(ABC):
    """The forks of this process, for one client, which passes a connection for each."""

    patience = math.inf  # seconds after which the fork runs only on idle cores

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._watched: dict[int, Fork] = {}  # by file descriptor; a fork has several
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    @abstractmethod
    def run(self, connection: socket.socket, descriptors: list[int]) -> NoReturn:
        """Run in the fork, with its connection to the client and further descriptors."""

    def on_start(self, fork: Fork) -> None:  # noqa: B027 -- need not be overridden
        """Handle the start of a fork."""

    def on_end(self, connection: socket.socket, code: int) -> None:  # noqa: B027
        """Handle the end of a fork with an exit code, which is negative for a signal."""

    def on_start_failed(self, connection: socket.socket, error: OSError) -> None:  # noqa: B027
        """Handle a fork that could not be started."""

    def serve(self) -> None:
        """Fork for the client until it disconnects, then wait for the remaining forks."""
        accepts = True
        while accepts or self._watched:
            looks = self._watched and self.patience < math.inf
            ready = self._poll.poll(LOOK_SECONDS * 1000 if looks else None)
            for descriptor, fork in [(number, self._watched.get(number)) for number, _ in ready]:
                if fork is None:
                    accepts = self._accept()
                elif self._watched.get(descriptor) is fork:  # otherwise, it was just ended
                    self._end_fork(fork, has_exited=descriptor == fork.exited)
            for fork in set(self._watched.values()) if looks else ():
                if time.monotonic() - fork.begun > self.patience:
                    fork.begun = math.inf  # lower the priority only once
                    with suppress(OSError):  # it has exited, or the system does not allow it
                        os.setpriority(os.PRIO_PROCESS, fork.process_id, LOWEST_PRIORITY)

    def _accept(self) -> bool:
        """Start the next fork; return False if the client has disconnected."""
        passed, descriptors, _, _ = socket.recv_fds(self._control, 1, MAX_DESCRIPTORS)
        if not passed:
            self._poll.unregister(self._control)
            return False
        self._fork(socket.socket(fileno=descriptors[0]), descriptors[1:])
        for descriptor in descriptors[1:]:
            os.close(descriptor)
        return True

    def _fork(self, connection: socket.socket, descriptors: list[int]) -> None:
        reading, writing = os.pipe()
        try:
            process_id = os.fork()
        except OSError as error:  # too many processes, or too little memory
            os.close(reading)
            os.close(writing)
            with connection, suppress(OSError):
                self.on_start_failed(connection, error)
            return
        if not process_id:
            os.close(reading)
            self._control.close()
            for other in set(self._watched.values()):  # otherwise, their clients would wait for this process too
                other.connection.close()
                os.close(other.exited)
            _die_with_parent()
            self.run(connection, descriptors)  # does not return
        os.close(writing)
        fork = Fork(process_id, connection, reading)
        for descriptor in (connection.fileno(), reading):
            self._watched[descriptor] = fork
            self._poll.register(descriptor, 0)  # report only that it was closed
        with suppress(OSError):  # the client has disconnected
            self.on_start(fork)

    def _end_fork(self, fork: Fork, *, has_exited: bool) -> None:
        """Wait for a fork that is about to end, or kill it because its client has disconnected."""
        if not has_exited:
            os.kill(fork.process_id, signal.SIGKILL)
        _, status = os.waitpid(fork.process_id, 0)
        for descriptor in (fork.connection.fileno(), fork.exited):
            del self._watched[descriptor]
            self._poll.unregister(descriptor)
        os.close(fork.exited)
        with fork.connection, suppress(OSError):
            self.on_end(fork.connection, os.waitstatus_to_exitcode(status))


def take_over(connection: socket.socket, streams: list[int]) -> Any:
    """Become the process that the client asks for, in a fork: in a session of its own, with the standard streams,
    environment and folder that are given. Return the arguments.
    """
    with connection.makefile("rb") as messages:
        arguments, environment, folder = pickle.load(messages)
    os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    return arguments


def send(connection: socket.socket, message: Any) -> None:
    """Send a message, which the other end reads with `pickle.load`."""
    connection.sendall(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def inherited_socket(descriptor: str) -> socket.socket:
    """Return the control socket that this process has inherited, and let the client end this process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # sent to every process of a service or a container
        signal.signal(number, signal.SIG_IGN)
    return socket.socket(fileno=int(descriptor))


def _die_with_parent() -> None:
    """Make the system kill this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)
