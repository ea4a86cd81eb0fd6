"""The duty of process 1 in a container: reaping orphaned processes."""

import asyncio
import os
from contextlib import suppress

INIT = 1  # the id of the first process of a container
LOOK_SECONDS = 5.0


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
