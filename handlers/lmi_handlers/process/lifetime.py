"""The process of a command, before and after its work."""

import os
import signal
import sys
from typing import NoReturn

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # the signals that end a server
STANDARD_STREAMS = 3


def prepare_process() -> None:
    """Open the standard streams that are closed; let signals end `lmi serve` with status 0 as long as nothing runs."""
    open_standard_streams()
    if sys.argv[1:2] == ["serve"]:
        for number in heeded_signals():
            signal.signal(number, _leave_at_once)


def heeded_signals() -> list[signal.Signals]:
    """Return the signals that end a server, without those that it was started to ignore, as by nohup."""
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def open_standard_streams() -> None:
    """Open /dev/null as each closed standard stream, whose number a socket would get otherwise."""
    for number in range(STANDARD_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


def leave(status: int) -> NoReturn:
    """End this process without waiting for its threads, which may be importing libraries for seconds."""
    from lmi_core.logs.logs import flush_log

    flush_log()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


def _leave_at_once(number: int, frame: object) -> NoReturn:
    os._exit(0)
