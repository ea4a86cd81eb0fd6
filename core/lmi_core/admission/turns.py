"""Turns of calls in an engine: each client's calls in order of arrival, one client after another."""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lmi_core.host.client_queue import ClientQueue

AHEAD = 4  # the minimum number of sequences waiting in the engine itself, so that it is never idle
STALLED = 1.0  # after so many seconds without progress, a slow reader no longer delays other clients


class Turn:
    """One call's turn, which comes when the engine may start the call."""

    __slots__ = ("_come", "arrived", "count", "is_unread", "was_unread")

    def __init__(self, count: int, is_unread: Callable[[], bool]) -> None:
        self.count = count  # sequences
        self.is_unread = is_unread
        self.was_unread = False
        self.arrived = 0.0  # on the loop's clock, if it had to wait
        self._come: asyncio.Event | None = None  # None: its turn came at once

    @property
    def waits(self) -> bool:
        return self._come is not None and not self._come.is_set()

    def defer(self) -> None:
        self._come = asyncio.Event()
        self.arrived = asyncio.get_running_loop().time()

    def begin(self) -> None:
        assert self._come is not None
        self._come.set()

    async def wait(self) -> None:
        """Wait for the turn."""
        if self._come is not None:
            await self._come.wait()


class TurnQueue(ABC):
    """The order in which an engine gets calls."""

    def __init__(self) -> None:
        self.waiting = 0  # the sequences of the calls whose turn has not come
        self._queue: ClientQueue[Turn] = ClientQueue()

    @contextmanager
    def of(self, client: str, count: int, is_unread: Callable[[], bool]) -> Iterator[Turn]:
        """Hold the turn of a client's call with `count` sequences; the caller waits until it comes.

        `is_unread` returns whether the client has unread output: the engine may have finished the call long ago.
        """
        turn = Turn(count, is_unread)
        if not self._try_begin(turn):
            turn.defer()
            self._queue.add(client, turn)
            self.waiting += count
            self._begin_next()
        try:
            yield turn
        finally:
            if turn.waits:
                self._queue.discard(client, turn)
                self.waiting -= count
            else:
                self._end(turn)
            if self.waiting:
                self._begin_next()

    def _pop(self) -> Turn:
        """Start the next waiting turn, and return it."""
        turn = self._queue.pop()
        self.waiting -= turn.count
        turn.begin()
        return turn

    @abstractmethod
    def _try_begin(self, turn: Turn) -> bool:
        """Start a new turn if it need not wait, and return whether it has started."""

    @abstractmethod
    def _begin_next(self) -> None:
        """Start the waiting turns that are due."""

    @abstractmethod
    def _end(self, turn: Turn) -> None:
        """Record the end of a turn that had started."""


class RollingBatch(TurnQueue):
    """A rolling batch: prompts join the engine one by one.

    The engine gets a few more sequences than it runs; other prompts wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self._size = math.inf
        self._given: set[Turn] = set()
        self._look: asyncio.TimerHandle | None = None

    def resize(self, batch_size: float, ahead: int = 0) -> None:
        """Set how many sequences the engine runs (math.inf if it schedules all itself) and how many more it queues."""
        self._size = batch_size + ahead

    def _try_begin(self, turn: Turn) -> bool:
        if self.waiting or not self._has_room(turn.count):
            return False
        self._given.add(turn)
        return True

    @contextmanager
    def closing(self, turn: Turn) -> Iterator[Turn]:
        """End a turn, which has come, at the end of the `with` statement."""
        try:
            yield turn
        finally:
            self._end(turn)
            if self.waiting:
                self._begin_next()

    def _has_room(self, count: int) -> bool:
        """Return whether the engine has room for this many more; an empty engine accepts any call."""
        return not self._given or sum([turn.count for turn in self._given]) + count <= self._size

    def _begin_next(self) -> None:
        """Start waiting turns while there is room.

        Smaller calls do not overtake the next one, which could then wait forever.
        """
        while self._queue and self._has_room(self._queue.next.count):
            self._given.add(self._pop())
        if self._queue and self._look is None:
            self._look = asyncio.get_running_loop().call_later(STALLED, self._end_unread)

    def _end(self, turn: Turn) -> None:
        self._given.discard(turn)

    def _end_unread(self) -> None:
        """End the turns of calls whose clients have read nothing since the last check, while others wait."""
        self._look = None
        for turn in [*self._given]:
            is_unread = turn.is_unread()
            if is_unread and turn.was_unread:
                self._given.discard(turn)
            turn.was_unread = is_unread
        self._begin_next()


class DynamicBatch(TurnQueue):
    """A dynamic batch: calls start together when there are `size` of them, or `max_delay` seconds after the first
    one arrived. The next batch starts when the whole batch is done. If too many calls wait, clients take turns.
    """

    def __init__(self, size: int, max_delay: float) -> None:
        super().__init__()
        self._size = size
        self._max_delay = max_delay
        self._num_running = 0
        self._start: asyncio.TimerHandle | None = None

    def change(self, size: int, max_delay: float) -> None:
        """Change the size of batches, or the delay."""
        self._size, self._max_delay = size, max_delay
        self._begin_next()

    def _try_begin(self, turn: Turn) -> bool:
        return False

    def _begin_next(self) -> None:
        """Start the next batch or schedule its start, unless a batch is running."""
        if self._start is not None:
            self._start.cancel()
            self._start = None
        if self._num_running or not self._queue:
            return
        if len(self._queue) >= self._size:
            self._start_now()
            return
        due = min(turn.arrived for turn in self._queue.of_each_client()) + self._max_delay
        self._start = asyncio.get_running_loop().call_at(due, self._start_now)  # very soon, if that time has passed

    def _start_now(self) -> None:
        while self._queue and self._num_running < self._size:
            self._num_running += 1
            self._pop()

    def _end(self, turn: Turn) -> None:
        self._num_running -= 1
