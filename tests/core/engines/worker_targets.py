"""What the workers of `test_worker.py` run."""

import logging
import os
import signal
import sys

from lmi_core.engines.worker import Channel


def echo(channel: Channel) -> None:
    while (message := channel.receive()) != b"end":
        channel.send(message)


def tell_process(channel: Channel) -> None:
    """The process id, the session and the log level; then waits."""
    session, level = os.getsid(0), logging.getLogger().getEffectiveLevel()
    channel.send(f"{os.getpid()} {session} {logging.getLevelName(level)}".encode())
    channel.receive()


def tell_variable(channel: Channel) -> None:
    """The environment's LMI_TEST; then waits."""
    channel.send(os.environ.get("LMI_TEST", "").encode())
    channel.receive()


def tell_pending(channel: Channel) -> None:
    """What is pending before anything came, then, once told to, everything that is."""
    channel.send(b"nothing" if channel.pending() is None else b"something")
    messages = [channel.receive()]
    while messages[-1] != b"last":
        if (message := channel.pending()) is not None:
            messages.append(message)
    channel.send(b" ".join(messages))
    channel.receive()


def count(channel: Channel) -> None:
    """Says a hundred messages and is gone."""
    for number in range(100):
        channel.send(str(number).encode())


def exit_with_3(channel: Channel) -> None:
    sys.exit(3)


def crash(channel: Channel) -> None:
    raise ValueError("broken target")


def ignore_termination(channel: Channel) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel.send(b"ready")
    while True:
        signal.pause()
