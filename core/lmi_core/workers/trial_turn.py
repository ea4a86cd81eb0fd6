"""The agreement of servers that share a worker: while one of them tries suspects, no other has requests in it.

Otherwise the suspects would be blamed for what the others' requests do. The worker grants the turn to one server at a
time, once every other server has reported that it has no requests left in the engine.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from enum import StrEnum

import msgspec

from lmi_core.errors import BackendUnhealthy
from lmi_core.workers.messages import ALIVE, encode

LOOK_SECONDS = 1.0  # between two messages of a waiting server, at which the worker looks for servers that have died


class TakeTurn(msgspec.Struct, tag=True):
    """A server's message: it wants to try suspects, and has no other requests in the engine."""


class Empty(msgspec.Struct, tag=True):
    """A server's message while another one takes its turn: it has no requests in the engine."""


class EndTurn(msgspec.Struct, tag=True):
    """A server's message: it no longer tries suspects, or wants to."""


class Holder(StrEnum):
    NOBODY = "nobody"
    YOU = "you"
    ANOTHER = "another"


class Turn(msgspec.Struct, tag=True):
    """The worker's message to a server: who tries suspects, or is about to."""

    holder: Holder


class TrialTurn:
    """The turns of one server in the worker that it shares."""

    def __init__(self, send: Callable[[msgspec.Struct], None], available: Callable[[], Awaitable[None]]) -> None:
        """`send` raises BackendUnhealthy while there is no worker, and `available` if there never will be."""
        self.on_open: Callable[[], None] = lambda: None  # called when requests may enter again
        self._send = send
        self._available = available
        self._is_wanted = False  # until it is given back
        self._is_closed = False  # another server has the turn, or may have it
        self._is_inside = False  # whether this server has requests in the engine
        self._given = asyncio.Event()

    def enter(self) -> bool:
        """Record that this server has requests in the engine; return False while a server tries suspects."""
        may_enter = not (self._is_wanted or self._is_closed)
        self._is_inside = self._is_inside or may_enter
        return may_enter

    def leave(self) -> None:
        """Record that this server has no requests in the engine."""
        self._is_inside = False
        self.report_empty()

    def report_empty(self) -> None:
        """Report an empty engine to another server's trial, if there is one and this is so."""
        if self._is_closed and not self._is_inside:
            self._tell(Empty())

    async def take(self) -> None:
        """Wait until the engine, in which this server has no requests, is empty and closed to other servers.

        Return at once if there will be no engine.
        """
        self._is_wanted = True
        self._given.clear()
        try:
            while not self._given.is_set():
                await self._available()
                self._tell(TakeTurn())
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._given.wait(), LOOK_SECONDS)
        except BackendUnhealthy:
            pass
        except BaseException:
            self.give_back(stays=False)
            raise

    def give_back(self, *, stays: bool) -> None:
        """Admit all servers' requests; with `stays`, this server already has some in the engine."""
        self._is_wanted, self._is_inside = False, stays
        self._given.clear()
        self._tell(EndTurn())

    def connect(self) -> None:
        """Let no request enter a new worker before it has reported who has the turn."""
        self._is_closed = True

    def lose(self) -> None:
        """Record that the worker has died."""
        self._is_closed = self._is_inside = False
        self._given.clear()

    def receive(self, message: Turn) -> None:
        self._is_closed = message.holder == Holder.ANOTHER
        if message.holder == Holder.YOU:
            self._given.set()
        elif message.holder == Holder.NOBODY:
            self.on_open()
        self.report_empty()

    def _tell(self, message: msgspec.Struct) -> None:
        with suppress(BackendUnhealthy):
            self._send(message)


class TurnKeeper:
    """The worker's side, which grants the turn to one server after another."""

    def __init__(self, send_to: Callable[[str, bytes], bool], servers: Collection[str]) -> None:
        """`send_to` returns whether the server is still connected; `servers` are the ones that have sent a message."""
        self._send_to = send_to
        self._servers = servers
        self._waiting = deque[str]()
        self._holder: str | None = None
        self._is_given = False
        self._inside = set[str]()  # servers that may have requests in the engine, before the turn is given
        self._actions = {
            encode(TakeTurn()): self._take,
            encode(Empty()): self._inside.discard,
            encode(EndTurn()): self._end,
        }

    def receive(self, server: str, message: bytes) -> bool:
        """Process a server's message if it is about turns, and return whether it is."""
        action = self._actions.get(message)
        if action is None:
            return False
        action(server)
        self._proceed()
        return True

    def greet(self, server: str) -> None:
        """Report to a server that has just connected who has the turn."""
        self._report(server, Holder.NOBODY if self._holder is None else Holder.ANOTHER)

    def _take(self, server: str) -> None:
        if server != self._holder and server not in self._waiting:
            self._waiting.append(server)

    def _end(self, server: str) -> None:
        if server in self._waiting:
            self._waiting.remove(server)
        if server == self._holder:
            self._holder = self._next()
            if self._holder is None:
                for each in tuple(self._servers):
                    self._report(each, Holder.NOBODY)

    def _proceed(self) -> None:
        """Give the turn to the next server that may have it; one that has disconnected loses it."""
        if self._holder is None:
            self._holder = self._next()
        elif not self._send_to(self._holder, ALIVE):
            self._end(self._holder)
        if self._holder is None or self._is_given:
            return
        for each in tuple(self._inside):
            if not self._send_to(each, ALIVE):
                self._inside.discard(each)
        if not self._inside:
            self._is_given = True
            self._report(self._holder, Holder.YOU)

    def _next(self) -> str | None:
        """Return the next server that waits for the turn, if any, after closing the engine to the others."""
        self._is_given = False
        while self._waiting:
            server = self._waiting.popleft()
            if self._send_to(server, ALIVE):
                others = [each for each in self._servers if each != server]
                self._inside.update(each for each in others if self._report(each, Holder.ANOTHER))
                return server
        return None

    def _report(self, server: str, holder: Holder) -> bool:
        return self._send_to(server, encode(Turn(holder)))
