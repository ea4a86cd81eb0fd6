"""The start and the end of a command's process."""

import os
import signal
import sys
from typing import NoReturn

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # signals that stop a server
# Log rotation sends them to servers; their default action is to end the process
WITHOUT_EFFECT = (signal.SIGUSR1, signal.SIGUSR2)
STANDARD_STREAMS = 3
FRONT_VARIABLE = "LMI_FRONT"  # set in front ends, whose parent handles signals sent to the whole process group
END_OF_FRONT = getattr(signal, "SIGRTMIN", signal.SIGTERM)  # the parent's signal to a front end

GIVEN_UP = 3  # exit code of a front end whose engines are no longer restarted; it stops the server


def prepare_process() -> None:
    """Open closed standard streams; let signals end servers with status 0 while nothing runs, or ignore them."""
    open_standard_streams()
    if sys.argv[1:2] in (["serve"], ["demo"]):
        for number in (*WITHOUT_EFFECT, *(ENDING if FRONT_VARIABLE in os.environ else ())):
            signal.signal(number, lambda *_: None)  # not SIG_IGN, which child processes would inherit
        for number in ending_signals():
            signal.signal(number, lambda *_: os._exit(0))


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a server, except those ignored from the start, as with nohup."""
    if FRONT_VARIABLE in os.environ:
        return [END_OF_FRONT]
    return [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def open_standard_streams() -> None:
    """Open /dev/null for each closed standard stream; otherwise, a socket would get its number."""
    for number in range(STANDARD_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number


def leave(status: int) -> NoReturn:
    """End this process without waiting for its threads, which may import libraries for seconds."""
    from lmi_core.logs.logs import flush_log

    flush_log()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)
