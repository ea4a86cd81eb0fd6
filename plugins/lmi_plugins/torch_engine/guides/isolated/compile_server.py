"""A process that compiles each guide in a fork with limits, which can be killed.

Run it as a module, with the descriptor of its socket. It loads xgrammar and the tokenizer once, so that a fork costs
milliseconds. It runs no threads, as a fork would not have them, and ends when its client is gone.
"""

import os
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from xgrammar import TokenizerInfo

from lmi_plugins.torch_engine.guides.isolated.compile_job import CompileJob, data_bytes
from lmi_plugins.torch_engine.guides.isolated.compile_protocol import Ended, Exceeded, Mistake, encode, receive, send
from lmi_plugins.torch_engine.guides.isolated.trial import token_lengths

LOOK_SECONDS = 0.25  # between two looks at the forks
PATIENCE = 1.0  # seconds after which a fork goes on only where nothing else wants its core
LOWEST_PRIORITY = 10
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


@dataclass(eq=False)
class Fork:
    """A process that compiles one guide."""

    process_id: int
    connection: socket.socket
    exited: int  # a pipe that ends with it
    begun: float = field(default_factory=time.monotonic)
    lowered: bool = False


class CompileServer:
    """The forks of this process, for one client."""

    def __init__(self, control: socket.socket, job: CompileJob) -> None:
        self._control = control
        self._job = job
        self._forks: set[Fork] = set()
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        """Compile the client's guides until it disconnects, then end the remaining forks."""
        while self._serve_once():
            pass
        for fork in tuple(self._forks):
            self._end(fork, killed=True)

    def _serve_once(self) -> bool:
        """Wait for a guide or the end of a fork, and return whether the client is still there."""
        for key, _ in self._selector.select(LOOK_SECONDS if self._forks else None):
            if key.data is None:
                if not self._accept():
                    return False
            elif key.data in self._forks:  # otherwise it was ended just now
                self._end(key.data, killed=key.fileobj is key.data.connection)
        for fork in self._forks:
            _lower(fork)
        return True

    def _accept(self) -> bool:
        """Begin to compile the next guide; return False if the client is gone."""
        passed, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        if not passed:
            return False
        connection = socket.socket(fileno=descriptors[0])
        message = receive(connection)
        if message is None:  # given up at once
            connection.close()
        else:
            self._fork(connection, message)
        return True

    def _fork(self, connection: socket.socket, message: bytes) -> None:
        reading, writing = os.pipe()
        try:
            process_id = os.fork()
        except OSError as error:  # there are too many processes, or there is too little memory
            os.close(reading)
            os.close(writing)
            with connection, suppress(OSError):
                send(connection, encode(Ended(f"it could not be started: {error}")))
            return
        if not process_id:
            self._control.close()
            for other in self._forks:  # whose clients would wait for this process too
                other.connection.close()
            self._job.run(connection, message)  # does not return
        os.close(writing)
        fork = Fork(process_id, connection, reading)
        self._forks.add(fork)
        self._selector.register(connection, selectors.EVENT_READ, fork)
        self._selector.register(reading, selectors.EVENT_READ, fork)

    def _end(self, fork: Fork, *, killed: bool) -> None:
        """Wait for a fork that is about to end, and report to its client if a signal has ended it."""
        if killed:
            os.kill(fork.process_id, signal.SIGKILL)
        _, status = os.waitpid(fork.process_id, 0)
        code = os.waitstatus_to_exitcode(status)
        self._forks.discard(fork)
        self._selector.unregister(fork.connection)
        self._selector.unregister(fork.exited)
        os.close(fork.exited)
        if code:
            with suppress(OSError):
                send(fork.connection, encode(_outcome(code)))
        fork.connection.close()


def _outcome(code: int) -> Exceeded | Mistake | Ended:
    """Return the outcome for an exit code, which is negative for a signal."""
    if -code in CRASHES:
        return Mistake("it makes xgrammar crash, as groups do that are nested too deeply")
    match -code:
        case signal.SIGXCPU:
            return Exceeded("compile_seconds")
        case signal.SIGPROF:
            return Exceeded("mask_seconds")
    return Ended(f"its process ended with signal {-code}" if code < 0 else f"its process ended with exit code {code}")


def _lower(fork: Fork) -> None:
    """Lower the priority of a fork that takes long."""
    if not fork.lowered and time.monotonic() - fork.begun > PATIENCE:
        fork.lowered = True
        with suppress(OSError):  # it has ended, or may not
            os.setpriority(os.PRIO_PROCESS, fork.process_id, LOWEST_PRIORITY)


def main(descriptor: int) -> None:
    """Serve the client whose end of a socket pair this process has inherited; it sends the tokenizer first."""
    control = socket.socket(fileno=descriptor)
    torch.set_num_threads(1)
    tokenizer = receive(control)
    if tokenizer is None:
        return
    info = TokenizerInfo.deserialize_json(tokenizer.decode())
    CompileServer(control, CompileJob(info, token_lengths(info.decoded_vocab), data_bytes())).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
