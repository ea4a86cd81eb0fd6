"""Detection of an engine whose process lives but makes no progress: stopped, deadlocked, or waiting for a dead
device.
"""

import asyncio
from collections.abc import Awaitable, Callable

HEARTBEAT_TIMEOUT = 60  # seconds; shorter than `option.inter_token_timeout`, so that requests survive a frozen engine
LOOKS = 5  # checks within the time after which an engine counts as frozen
# An engine that computes may be silent this many times as long: a long step is no fault, but an endless one is.
PATIENCE = 10


class Heartbeat:
    """The signs of life of an engine: messages of its own loop, which is pinged when it is silent.

    A loop with long computations sends signs of life during a step, because it can answer pings only between steps.
    """

    def __init__(self, timeout: float) -> None:
        """Treat an engine as frozen after `timeout` seconds of silence; 0 means never."""
        self._timeout = timeout
        self.heard = False  # set at each sign of life, such as a message

    async def wait_frozen(self, ask: Callable[[], None], computes: Callable[[], Awaitable[bool]] | None = None) -> str:
        """Wait until the engine counts as frozen, and return a description; `ask` sends a ping, without waiting.

        Checks are counted, not seconds: if this process or the whole machine was stopped for a while, the engine still
        gets its time to answer. `computes` returns whether it has computed since the last check.
        """
        if not self._timeout:
            await asyncio.get_running_loop().create_future()  # never completes
        looks = silence = 0
        while silence < LOOKS * PATIENCE:
            self.heard = False
            await asyncio.sleep(self._timeout / LOOKS)
            if self.heard:
                looks = silence = 0
                continue
            looks += 1
            silence += 1 if computes is not None and await computes() else PATIENCE
            ask()
        return f"gave no sign of life for {looks * self._timeout / LOOKS:g} seconds (option.heartbeat_timeout)"
