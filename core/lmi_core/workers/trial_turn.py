"""The agreement of servers that share a worker: while one of them tries suspects, no other has requests in it.

Otherwise the suspects would be blamed for what the others' requests do. The worker grants the turn to one server at a
time, once every other server has reported that it has no requests left in the engine.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from enum import StrEnum
from typing import NamedTuple

import msgspec

from lmi_core.errors import BackendUnhealthy
from lmi_core.workers.messages import ALIVE, encode

LOOK_SECONDS = 1.0  # between two messages of a waiting server, at which the worker looks for servers that have died


class Step(StrEnum):
    TAKE = "take"  # the server wants to try suspects, and has no other requests in the engine
    END = "end"  # it no longer tries suspects, or wants to
    EMPTY = "empty"  # it has no requests in the engine, during another one's turn
    WAIT = "wait"  # it waits for the end of another one's turn


class TurnStep(msgspec.Struct, tag=True):
    """A server's message to the worker."""

    step: Step
    number: int  # of its own turn, or of another server's that has made it close the engine


class Holder(StrEnum):
    NOBODY = "nobody"
    YOU = "you"
    ANOTHER = "another"


class Turn(msgspec.Struct, tag=True):
    """The worker's message to a server: who tries suspects, or is about to."""

    holder: Holder
    number: int = 0  # YOU: as the server has numbered the turn; ANOTHER: as the worker has


# The bytes that begin a server's message, as no other message does: the number of fields, and the tag
_STEP = encode(TurnStep(Step.END, 0)).partition(b"step")[0]


class TrialTurn:
    """The turns of one server in the worker that it shares."""

    def __init__(self, send: Callable[[msgspec.Struct], None], available: Callable[[], Awaitable[None]]) -> None:
        """`send` raises BackendUnhealthy while there is no worker, and `available` if there never will be."""
        self.on_open: Callable[[], None] = lambda: None  # called when requests may enter again
        self.is_closed = False  # another server has the turn, or may have it
        self._send = send
        self._available = available
        self._is_wanted = False  # until it is given back
        self._is_inside = False  # whether this server has requests in the engine
        self._number = 0  # of its latest turn
        self._number_of_other = 0
        self._given = asyncio.Event()

    def enter(self) -> bool:
        """Record that this server has requests in the engine; return False while a server tries suspects."""
        may_enter = not (self._is_wanted or self.is_closed)
        self._is_inside = self._is_inside or may_enter
        return may_enter

    def leave(self) -> None:
        """Record that this server has no requests in the engine."""
        self._is_inside = False
        if self.is_closed:
            self.look()

    def look(self) -> None:
        """Let the worker check whether another server's turn can begin or end."""
        self._tell(Step.WAIT if self._is_inside else Step.EMPTY, self._number_of_other)

    async def take(self) -> None:
        """Wait until the engine, in which this server has no requests, is empty and closed to other servers.

        Return at once if there will be no engine.
        """
        self._is_wanted = True
        self._number += 1
        try:
            while not self._given.is_set():
                await self._available()
                self._tell(Step.TAKE, self._number)
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
        self._tell(Step.END, self._number)

    def connect(self) -> None:
        """Let no request enter a new worker before it has reported who has the turn."""
        self.is_closed = True

    def lose(self) -> None:
        """Record that the worker has died."""
        self.is_closed = self._is_inside = False
        self._given.clear()

    def receive(self, message: Turn) -> None:
        if message.holder == Holder.YOU:
            if self._is_wanted and message.number == self._number:
                self._given.set()
            return
        self.is_closed = message.holder == Holder.ANOTHER
        if self.is_closed:
            self._number_of_other = message.number
            self.look()
        else:
            self.on_open()

    def _tell(self, step: Step, number: int) -> None:
        with suppress(BackendUnhealthy):
            self._send(TurnStep(step, number))


class _Turn(NamedTuple):
    server: str
    number: int  # the server's own


class TurnKeeper:
    """The worker's side, which grants the turn to one server after another."""

    def __init__(self, send_to: Callable[[str, bytes], bool], servers: Collection[str]) -> None:
        """`send_to` returns whether the server is still connected; `servers` are the ones that have sent a message."""
        self._send_to = send_to
        self._servers = servers
        self._decode = msgspec.msgpack.Decoder(TurnStep).decode
        self._waiting = deque[_Turn]()
        self._turn: _Turn | None = None  # given, or next
        self._number = 0  # of the turn, for the other servers
        self._is_given = False
        self._inside = set[str]()  # servers that may have requests in the engine, before the turn is given

    def receive(self, server: str, message: bytes) -> bool:
        """Process a server's message if it is about turns, and return whether it is."""
        if not message.startswith(_STEP):
            return False
        decoded = self._decode(message)
        if decoded.step == Step.TAKE:
            turn = _Turn(server, decoded.number)
            if turn != self._turn and turn not in self._waiting:
                self._waiting.append(turn)
        elif decoded.step == Step.END:
            self._end(server)
        elif decoded.step == Step.EMPTY and decoded.number == self._number:
            self._inside.discard(server)
        self._proceed()
        return True

    def greet(self, server: str) -> None:
        """Report to a server that has just connected who has the turn."""
        if self._turn is None:
            self._report(server, Turn(Holder.NOBODY))
        else:
            self._report(server, Turn(Holder.ANOTHER, self._number))

    def _end(self, server: str) -> None:
        self._waiting = deque(each for each in self._waiting if each.server != server)
        if self._turn is not None and self._turn.server == server:
            self._turn = self._next()
            if self._turn is None:
                for each in tuple(self._servers):
                    self._report(each, Turn(Holder.NOBODY))

    def _proceed(self) -> None:
        """Give the turn to the next server that may have it; one that has disconnected loses it."""
        if self._turn is None:
            self._turn = self._next()
        elif not self._send_to(self._turn.server, ALIVE):
            self._end(self._turn.server)
        if self._turn is None or self._is_given:
            return
        for each in tuple(self._inside):
            if not self._send_to(each, ALIVE):
                self._inside.discard(each)
        if not self._inside:
            self._is_given = True
            self._report(self._turn.server, Turn(Holder.YOU, self._turn.number))

    def _next(self) -> _Turn | None:
        """Return the next turn of a server that waits for one, if any, after closing the engine to the others."""
        self._is_given = False
        while self._waiting:
            turn = self._waiting.popleft()
            if self._send_to(turn.server, ALIVE):
                self._number += 1
                others = [each for each in self._servers if each != turn.server]
                closed = Turn(Holder.ANOTHER, self._number)
                self._inside = {each for each in others if self._report(each, closed)}
                return turn
        return None

    def _report(self, server: str, turn: Turn) -> bool:
        return self._send_to(server, encode(turn))
