"""Turns of requests in an engine: many together, or one alone, which is how the one that kills it is found."""

import asyncio
from collections import deque
from typing import Self


class Place:
    """A request's place in the engine, which it leaves at the end of a `with` statement."""

    __slots__ = ("_turns",)

    def __init__(self, turns: "Turns") -> None:
        self._turns = turns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give up the place; do nothing where it was cleared before."""
        self._turns.leave(self)

    def share(self) -> None:
        """Let others in beside this one, which was alone."""
        self._turns.share(self)


class Turns:
    """The requests in the engine. Those that want to be alone go first, one by one; then all others together."""

    def __init__(self) -> None:
        self._inside: set[Place] = set()
        self._alone: Place | None = None  # one of them
        self._want_alone: deque[asyncio.Future[Place]] = deque()
        self._others: deque[asyncio.Future[Place]] = deque()

    @property
    def inside(self) -> int:
        """The number of those that have a place."""
        return len(self._inside)

    async def enter(self) -> Place:
        """Join the others, once nobody is alone or waits for it."""
        if self._alone is not None or self._want_alone:
            return await self._queue(self._others)
        self._inside.add(place := Place(self))
        return place

    async def enter_alone(self) -> Place:
        """Wait until nobody is in the engine, and keep all others out until `share` or `leave`."""
        if self._inside or self._want_alone:
            return await self._queue(self._want_alone)
        self._inside.add(place := Place(self))
        self._alone = place
        return place

    def leave(self, place: Place) -> None:
        """Give up a place; do nothing where it was cleared before."""
        self._inside.discard(place)
        self.share(place)

    def share(self, place: Place) -> None:
        """Let others in beside this one, which was alone."""
        if self._alone is place:
            self._alone = None
        self._admit()

    def clear(self) -> None:
        """Take all places away, as the engine is gone. Whoever had one may learn of it late, if its client is slow."""
        self._inside.clear()
        self._alone = None

    async def _queue(self, queue: "deque[asyncio.Future[Place]]") -> Place:
        waiting: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        queue.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting in queue:
                queue.remove(waiting)
            elif not waiting.cancelled():  # let in just now
                self.leave(waiting.result())
            self._admit()
            raise

    def _admit(self) -> None:
        """Let in whoever may be let in now."""
        while self._want_alone and self._want_alone[0].cancelled():  # and does not know it yet
            self._want_alone.popleft()
        if self._want_alone:
            if not self._inside:
                self._alone = self._let_in(self._want_alone.popleft())
        elif self._alone is None:
            while self._others:
                waiting = self._others.popleft()
                if not waiting.cancelled():
                    self._let_in(waiting)

    def _let_in(self, waiting: "asyncio.Future[Place]") -> Place:
        self._inside.add(place := Place(self))
        waiting.set_result(place)
        return place
