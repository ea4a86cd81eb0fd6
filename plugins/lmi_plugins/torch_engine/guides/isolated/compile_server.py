"""A process that compiles each guide in a fork with limits, which can be killed.

Run it as a module, with the descriptor of its socket. It loads xgrammar and the tokenizer once.
"""

import os
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import NoReturn

import torch
from xgrammar import TokenizerInfo

from lmi_core.workers.fork_messages import receive, send
from lmi_core.workers.fork_server import Fork, ForkServer, inherited_socket
from lmi_plugins.torch_engine.guides.isolated.compile_job import CompileJob, data_bytes
from lmi_plugins.torch_engine.guides.isolated.compile_protocol import Ended, Exceeded, Mistake, encode
from lmi_plugins.torch_engine.guides.isolated.trial import token_lengths

PATIENCE = 1.0  # seconds after which a fork goes on only where nothing else wants its core
LOWEST_PRIORITY = 10
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


class CompileServer(ForkServer):
    """The processes that compile the guides of one client."""

    look_seconds = 0.25

    def __init__(self, control: socket.socket, job: CompileJob) -> None:
        super().__init__(control)
        self._job = job

    def run(self, connection: socket.socket, message: bytes, descriptors: list[int]) -> NoReturn:
        self._job.run(connection, message)

    def not_started(self, connection: socket.socket, error: OSError) -> None:
        send(connection, encode(Ended(f"it could not be started: {error}")))

    def ended(self, connection: socket.socket, code: int) -> None:
        """Report to the client if a signal has ended its process, which otherwise has sent the outcome itself."""
        if code:
            send(connection, encode(_outcome(code)))

    def look(self, fork: Fork) -> None:
        """Lower the priority of a fork that takes long."""
        if not fork.lowered and time.monotonic() - fork.begun > PATIENCE:
            fork.lowered = True
            with suppress(OSError):  # it has ended, or may not
                os.setpriority(os.PRIO_PROCESS, fork.process_id, LOWEST_PRIORITY)


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


def main(descriptor: str) -> None:
    """Serve the client whose end of a socket pair this process has inherited; it sends the tokenizer first."""
    control = inherited_socket(descriptor)
    torch.set_num_threads(1)
    tokenizer = receive(control)
    if tokenizer is None:
        return
    info = TokenizerInfo.deserialize_json(tokenizer.decode())
    CompileServer(control, CompileJob(info, token_lengths(info.decoded_vocab), data_bytes())).serve()


if __name__ == "__main__":
    main(sys.argv[1])
