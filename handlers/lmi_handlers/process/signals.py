"""The signals that end a server, and the duty of process 1 in a container to reap orphaned processes."""

import asyncio
import os
import signal
import time
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any

INIT = 1  # the id of the first process of a container
LOOK_SECONDS = 5.0
STUCK_SECONDS = 5.0  # after which an event loop that has not seen a signal is taken to be blocked for good


class Signals:
    """The signals that end a server, awaited one by one.

    If code blocks the event loop, such as a formatter that never returns, a signal some seconds after an unseen one
    ends the process.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._numbers = tuple(numbers)
        self._received: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._unseen_since: float | None = None
        for number in self._numbers:
            asyncio.get_running_loop().add_signal_handler(number, self._see, number)
            signal.signal(
                number, self._arrive
            )  # called although the event loop is blocked, which still gets the signal

    def _arrive(self, number: int, _: object) -> None:
        if self._unseen_since is None:
            self._unseen_since = time.monotonic()
        elif time.monotonic() - self._unseen_since >= STUCK_SECONDS:
            os._exit(128 + number)

    def _see(self, number: signal.Signals) -> None:
        self._unseen_since = None
        self._received.put_nowait(number)

    async def next(self) -> None:
        await self._received.get()

    async def interrupt(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run the work, cancel it on a signal, and return whether it completed."""
        task, stop = asyncio.create_task(work), asyncio.create_task(self.next())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        signalled = stop.done()
        stop.cancel()
        if not signalled:
            task.result()
            return True
        task.cancel()  # the failure may be that of a process that received the signal too
        await asyncio.gather(task, return_exceptions=True)
        return False

    def end_at_next(self) -> None:
        """Let the next signal end the process immediately, along with its child processes."""
        for number in self._numbers:
            asyncio.get_running_loop().add_signal_handler(number, os._exit, 128 + number)


async def reap_adopted(look_seconds: float = LOOK_SECONDS) -> None:
    """Reap dead adopted children, forever.

    Own children are reaped by their starter as soon as they die; a child that is dead at two checks was adopted.
    """
    before: int | None = None
    while True:
        await asyncio.sleep(look_seconds)
        found = _dead_child()
        if found is not None and found == before:
            with suppress(ChildProcessError):
                os.waitpid(found, os.WNOHANG)
            found = None
        before = found


def _dead_child() -> int | None:
    """Return the id of a dead child that is not reaped, or None."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid
