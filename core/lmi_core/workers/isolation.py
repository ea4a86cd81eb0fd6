"""Isolation of requests in an engine: many together, or one alone, which is how the one that kills it is found."""

import asyncio
from collections import deque
from typing import Self


class Presence:
    """A request's presence in the engine, which ends with a `with` statement."""

    __slots__ = ("_isolation",)

    def __init__(self, isolation: "Isolation") -> None:
        self._isolation = isolation

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave the engine; do nothing where `clear` has ended the presence."""
        self._isolation.leave(self)

    def share(self) -> None:
        """Let others in beside this one, which was alone."""
        self._isolation.share(self)


class Isolation:
    """The requests in the engine. Those that want to be alone go first, one by one; then all others together."""

    def __init__(self) -> None:
        self._inside: set[Presence] = set()
        self._alone: Presence | None = None  # one of them
        self._want_alone: deque[asyncio.Future[Presence]] = deque()
        self._others: deque[asyncio.Future[Presence]] = deque()

    @property
    def inside(self) -> int:
        """The number of those in the engine."""
        return len(self._inside)

    async def enter(self) -> Presence:
        """Join the others, when no request is alone or waits to be."""
        if self._alone is not None or self._want_alone:
            return await self._queue(self._others)
        self._inside.add(presence := Presence(self))
        return presence

    async def enter_alone(self) -> Presence:
        """Wait until the engine is empty, and keep all others out until `share` or `leave`."""
        if self._inside or self._want_alone:
            return await self._queue(self._want_alone)
        self._inside.add(presence := Presence(self))
        self._alone = presence
        return presence

    def leave(self, presence: Presence) -> None:
        """End a presence; do nothing where `clear` has ended it."""
        self._inside.discard(presence)
        self.share(presence)

    def share(self, presence: Presence) -> None:
        """Let others in beside this one, which was alone."""
        if self._alone is presence:
            self._alone = None
        self._admit()

    def clear(self) -> None:
        """End every presence, as the engine is gone. Whoever had one may learn of it late, if its client is slow."""
        self._inside.clear()
        self._alone = None

    async def _queue(self, queue: "deque[asyncio.Future[Presence]]") -> Presence:
        waiting: asyncio.Future[Presence] = asyncio.get_running_loop().create_future()
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
        """Admit waiting requests that may enter now."""
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

    def _let_in(self, waiting: "asyncio.Future[Presence]") -> Presence:
        self._inside.add(presence := Presence(self))
        waiting.set_result(presence)
        return presence
