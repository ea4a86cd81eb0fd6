"""The target functions of the workers that tests start."""

import logging
import os
import signal
import subprocess
import sys
import threading

from lmi_core.logs.logs import flush_log
from lmi_core.workers.channel import Channel, SharedChannel

prepared_in = 0  # the process that has imported what workers need


def prepare() -> None:
    global prepared_in
    prepared_in = os.getpid()


def tell_preparation(channel: Channel) -> None:
    """Send the process that has prepared this one; then wait."""
    channel.send(str(prepared_in).encode())
    channel.receive()


def echo(channel: Channel) -> None:
    while (message := channel.receive()) != b"end":
        channel.send(message)


def tell_process(channel: Channel) -> None:
    """Send the process id, the session and the log level; then wait."""
    session, level = os.getsid(0), logging.getLogger().getEffectiveLevel()
    channel.send(f"{os.getpid()} {session} {logging.getLevelName(level)}".encode())
    channel.receive()


def log(channel: Channel) -> None:
    """Log a line, and then send a message; then wait."""
    logging.getLogger("worker").info("it runs")
    flush_log()
    channel.send(b"logged")
    channel.receive()


def tell_variable(channel: Channel) -> None:
    """Send the environment variable LMI_TEST; then wait."""
    channel.send(os.environ.get("LMI_TEST", "").encode())
    channel.receive()


def tell_pending(channel: Channel) -> None:
    """Send whether a message is pending at the start, then all messages up to `last`, joined."""
    channel.send(b"nothing" if channel.pending() is None else b"something")
    messages = [channel.receive()]
    while messages[-1] != b"last":
        if (message := channel.pending()) is not None:
            messages.append(message)
    channel.send(b" ".join(messages))
    channel.receive()


def count(channel: Channel) -> None:
    """Send a hundred messages and end."""
    for number in range(100):
        channel.send(str(number).encode())


def exit_with_3(channel: Channel) -> None:
    sys.exit(3)


def hang(channel: Channel) -> None:
    """Never report that the worker runs."""
    threading.Event().wait()


def crash(channel: Channel) -> None:
    raise ValueError("broken target")


def freeze(channel: Channel) -> None:
    """Stop the process, all of its threads, which can only be killed then."""
    channel.send(b"ready")
    channel.receive()
    os.kill(os.getpid(), signal.SIGSTOP)


def tell_of_signals(channel: Channel) -> None:
    """Send a message, and once every signal that ends a server has come, another."""
    channel.send(str(os.getpid()).encode())
    while (message := channel.receive()) == b"still there?":
        channel.send(b"yes")
    channel.send(message)


def echo_after_hello(channel: Channel) -> None:
    channel.send(b"hello")
    echo(channel)


def start_others(channel: Channel) -> None:
    """Start a process that ignores SIGTERM, and one in a session of its own, and send their ids; end when asked to."""
    ignoring = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"], stdout=subprocess.PIPE)
    assert ignoring.stdout is not None
    ignoring.stdout.readline()
    apart = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    channel.send(f"{ignoring.pid} {apart.pid}".encode())
    channel.receive()


def wait(channel: Channel) -> None:
    threading.Event().wait()


def tell_sharers(channel: Channel) -> None:
    """Answer each message of a server that shares this worker with the process id and the message."""
    assert isinstance(channel, SharedChannel)
    message = channel.begin(bytes)
    while True:
        channel.send_to(channel.sender, str(os.getpid()).encode() + b" " + message)
        message = channel.receive()


def load_and_echo(channel: Channel) -> None:
    """Load a model, which is the first message, and send messages back until one is `end`."""
    assert isinstance(channel, SharedChannel)
    message = channel.begin(bytes)
    channel.greeting = b"loaded " + message
    channel.greet(channel.sender)
    while (message := channel.receive()) != b"end":
        channel.send_to(channel.sender, message)
