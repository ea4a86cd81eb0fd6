"""Signals of processes that serve another: their parent decides when they end."""

import os
import signal
import threading
from collections.abc import Callable

from lmi_core.host.processes import descendants, end_session
from lmi_core.logs.level import heed_log_level
from lmi_core.logs.logs import flush_log

LEFT_TO_PARENT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def leave_signals_to_parent(clean_up: Callable[[], None] | None = None) -> None:
    """Ignore signals to the whole process group, as sent by systemd or containers, and end with the parent instead.

    The parent finishes requests first, then it closes this process's standard input, as its own death does too. Then
    `clean_up` is called, and this process and all that it has started end.
    """
    for number in LEFT_TO_PARENT:
        signal.signal(number, _ignore)  # not SIG_IGN, which the programs that this process starts would inherit
    threading.Thread(target=_exit_with_parent, args=(clean_up,), daemon=True).start()


def _ignore(number: int, frame: object) -> None:
    pass


def _exit_with_parent(clean_up: Callable[[], None] | None) -> None:
    while message := os.read(0, 1024):  # not sys.stdin: its lock, held here, would abort the interpreter's own exit
        heed_log_level(message)
    try:
        if clean_up is not None:
            clean_up()
        flush_log()
        end_session(os.getpid(), descendants(os.getpid()))
    finally:
        os._exit(0)
