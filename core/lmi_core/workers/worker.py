"""The worker's own process; `python -m lmi_core.workers.worker` runs it."""

import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lmi_core.host.processes import descendants, end_session
from lmi_core.logs.level import apply_log_level
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE, configure_logging, flush_log
from lmi_core.workers.channel import TRANSPORT, Channel, SharedChannel

LEFT_TO_PARENT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(target: str, address: str, shared_address: str | None = None) -> None:
    """Run `target` in the child process until it returns, or until its parent exits or ends it.

    With a `shared_address`, several servers connect to it there.
    """
    configure_logging(os.environ.get(LOG_LEVEL_VARIABLE, "info"))
    leave_signals_to_parent(partial(_remove, Path(address.removeprefix(TRANSPORT))))
    module, _, name = target.partition(":")
    run: Callable[[Channel], None] = getattr(importlib.import_module(module), name)
    channel = Channel(address) if shared_address is None else SharedChannel(shared_address, address)
    try:
        run(channel)
    finally:
        channel.close()


def _remove(socket: Path) -> None:
    """Remove the remains of a killed parent: an unconnected socket and its folder."""
    with contextlib.suppress(OSError):
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()


def leave_signals_to_parent(clean_up: Callable[[], None] | None = None) -> None:
    """Ignore signals to the whole process group, as sent by systemd or containers, and end with the parent instead.

    The parent finishes requests first, and then closes this process's standard input; so does its own death. Then
    `clean_up` is called, and this process exits with all processes that it has started.
    """
    for number in LEFT_TO_PARENT:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which child processes would inherit
    threading.Thread(target=exit_with_parent, args=(clean_up,), daemon=True).start()


def exit_with_parent(clean_up: Callable[[], None] | None = None) -> None:
    """Follow the parent's log levels until it closes the standard input, and exit with it."""
    while message := os.read(0, 1024):  # not sys.stdin, whose lock would abort the interpreter's exit
        apply_log_level(message)
    try:
        if clean_up is not None:
            clean_up()
        flush_log()
        end_session(os.getpid(), descendants(os.getpid()))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
