"""Requests that come in a burst, begun one after another."""

import asyncio


class Turns:
    """One request for each pass of the event loop: in between, those that run get their tokens."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def next(self) -> None:
        """Until it is the caller's turn."""
        await self._turn.acquire()
        asyncio.get_running_loop().call_soon(self._turn.release)
