"""The turns of calls in an engine: those of each client in order of arrival, and one client's after the other's."""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lmi_core.serving.limits.client_queue import ClientQueue

AHEAD = 4  # the least number of sequences that wait in the engine itself, so that a place there is never empty
STALLED = 1.0  # seconds without progress of a client that reads too slowly, after which it keeps nobody waiting


class Turn:
    """One call's turn, which has come once there is room in the engine."""

    __slots__ = ("_come", "count", "is_unread", "was_unread")

    def __init__(self, count: int, is_unread: Callable[[], bool]) -> None:
        self.count = count  # sequences
        self.is_unread = is_unread
        self.was_unread = False
        self._come: asyncio.Event | None = None  # None: it has come at once

    @property
    def waits(self) -> bool:
        return self._come is not None and not self._come.is_set()

    def defer(self) -> None:
        self._come = asyncio.Event()

    def begin(self) -> None:
        assert self._come is not None
        self._come.set()

    async def come(self) -> None:
        """Wait until it has come."""
        if self._come is not None:
            await self._come.wait()


class Turns:
    """The sequences that an engine is given at the same time, a few more than it works on; the other calls wait."""

    def __init__(self) -> None:
        self._size = math.inf
        self._given: set[Turn] = set()
        self._waiting: ClientQueue[Turn] = ClientQueue()
        self.waiting = 0  # the sequences of the calls whose turn has not come
        self._look: asyncio.TimerHandle | None = None

    def resize(self, batch_size: float, ahead: int = 0) -> None:
        """Set how many sequences the engine works on, math.inf where it orders all, and how many more wait in it."""
        self._size = batch_size + ahead

    @contextmanager
    def of(self, client: str, count: int, is_unread: Callable[[], bool]) -> Iterator[Turn]:
        """Hold the turn of a client's call with `count` sequences; the caller waits until it has come.

        `is_unread` tells whether the client has yet to read what there is: the engine may long be done with the call.
        """
        turn = Turn(count, is_unread)
        if self._waiting or not self._has_room(count):
            turn.defer()
            self._waiting.add(client, turn)
            self.waiting += count
            self._look_later()
        else:
            self._given.add(turn)
        try:
            yield turn
        finally:
            if turn.waits:
                self._waiting.discard(client, turn)
                self.waiting -= count
            self._given.discard(turn)
            self._begin_next()

    def _has_room(self, count: int) -> bool:
        """Return whether the engine takes as many more; one that has nothing takes any call."""
        return not self._given or sum([turn.count for turn in self._given]) + count <= self._size

    def _begin_next(self) -> None:
        """Begin waiting turns while there is room. No smaller call overtakes the next one, which would wait forever."""
        while self._waiting and self._has_room(self._waiting.next.count):
            turn = self._waiting.pop()
            self.waiting -= turn.count
            self._given.add(turn)
            turn.begin()

    def _look_later(self) -> None:
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(STALLED, self._take_from_unread)

    def _take_from_unread(self) -> None:
        """Take the turns of calls whose clients have read nothing since the last look, while others wait."""
        self._look = None
        for turn in [*self._given]:
            is_unread = turn.is_unread()
            if is_unread and turn.was_unread:
                self._given.discard(turn)
            turn.was_unread = is_unread
        self._begin_next()
        if self._waiting:
            self._look_later()
