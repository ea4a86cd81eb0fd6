"""Detection of an engine whose process lives but does nothing: stopped, in a deadlock, or waiting for a dead device."""

import asyncio
from collections.abc import Awaitable, Callable

HEARTBEAT_TIMEOUT = 60  # seconds; less than `option.inter_token_timeout`, so that requests outlive a frozen engine
LOOKS = 5  # within the time after which an engine counts as frozen
PATIENCE = (
    10  # times as long an engine may be silent that computes, as one long step is no fault, but an endless one is
)


class Heartbeat:
    """The signs of life of an engine: what its own loop sends, which is asked for an answer when it is silent.

    A loop that computes for long gives signs of life itself, step by step, as it can answer only in between.
    """

    def __init__(self, timeout: float) -> None:
        """Call an engine frozen after `timeout` seconds of silence; 0: never."""
        self._timeout = timeout
        self._heard = False

    def beat(self) -> None:
        """Note a sign of life; cheap enough for each message."""
        self._heard = True

    async def frozen(self, ask: Callable[[], None], computes: Callable[[], Awaitable[bool]] | None = None) -> str:
        """Wait until the engine counts as frozen, and return that it is; `ask` asks for an answer, without waiting.

        What counts are looks, not the clock: where this process, or the whole machine, was stopped for a while, the
        engine still gets its time to answer. `computes` tells whether it has computed since the last look.
        """
        if not self._timeout:
            await asyncio.get_running_loop().create_future()  # never done
        looks = silence = 0
        while silence < LOOKS * PATIENCE:
            self._heard = False
            await asyncio.sleep(self._timeout / LOOKS)
            if self._heard:
                looks = silence = 0
                continue
            looks += 1
            silence += 1 if computes is not None and await computes() else PATIENCE
            ask()
        return f"gave no sign of life for {looks * self._timeout / LOOKS:g} seconds (option.heartbeat_timeout)"
