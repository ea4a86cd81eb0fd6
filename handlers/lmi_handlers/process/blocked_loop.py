"""Warnings about code that blocks the server's event loop, such as a formatter that never returns."""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

logger = logging.getLogger(__name__)

BLOCKED_SECONDS = 5.0  # after which a blocked loop is reported
LOOK_SECONDS = 1.0  # between two signs of life
FRAMES = 8  # of the stack, the innermost ones


@asynccontextmanager
async def blocked_loop_warnings() -> AsyncIterator[None]:
    """Log which code of this thread blocks the running event loop, and when the loop runs again."""
    ended = threading.Event()
    loop, thread_id = asyncio.get_running_loop(), threading.get_ident()
    threading.Thread(target=_watch, args=(loop, thread_id, ended), name="blocked loop", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _watch(loop: asyncio.AbstractEventLoop, thread_id: int, ended: threading.Event) -> None:
    while not ended.wait(LOOK_SECONDS):
        sign, asked_at = threading.Event(), time.monotonic()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(sign.set)
        if _wait(sign) or ended.is_set():
            continue
        stack = "".join(traceback.format_stack(sys._current_frames()[thread_id], FRAMES)).rstrip()
        logger.warning("no request is answered while this code blocks the server:\n%s", stack)
        sign.wait()
        logger.warning("the server was blocked for %.0f s", time.monotonic() - asked_at)


def _wait(sign: threading.Event) -> bool:
    """Wait for a sign of life in several turns, only one of which passes while the process is stopped."""
    return any(sign.wait(BLOCKED_SECONDS / 5) for _ in range(5))
