"""The turns of conversations that a model keeps in memory, so that clients can continue them by id."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from lmi_core.generation.request import ValidRequest

OVERHEAD = 1024  # bytes that a turn takes in addition to its JSON


@dataclass(eq=False, slots=True)
class Turn:
    """A request of a conversation and its answer, as JSON in the form of its dialect."""

    question: bytes
    answer: bytes
    previous: "Turn | None" = None
    item_ids: Sequence[str] = ()  # ids of the parts of the answer, which clients may refer to
    key: str | None = None  # the holder of the API key that owns it
    holders: int = field(default=0, init=False)  # references: its own id, and the stored turns that continue it

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.question) + len(self.answer)

    def conversation(self) -> "list[Turn]":
        """Return the turns up to this one, in order."""
        turns: list[Turn] = []
        turn: Turn | None = self
        while turn is not None:
            turns.append(turn)
            turn = turn.previous
        return turns[::-1]


class RunningAnswer(Protocol):
    """An answer that is being generated."""

    @property
    def request_id(self) -> str:
        """The id of its call, which need not be unique."""

    @property
    def requests(self) -> Sequence[ValidRequest]:
        """The requests of its call, by which it can be aborted."""

    @property
    def key(self) -> str | None:
        """The holder of the API key that owns it."""

    def so_far(self, status: str) -> bytes:
        """Return the answer generated so far, with this status."""


Kept = TypeVar("Kept", Turn, RunningAnswer)


class Conversations:
    """Turns by id, at most `limit` bytes in total; the least recently used are dropped first.

    Each turn refers to the turn before it, which therefore stays in memory even after its own id is dropped. With API
    keys, clients see only the turns of their own key. Without keys, anyone who knows an id can read the turn, so ids
    must be hard to guess.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0  # bytes of all stored turns
        self.running: WeakValueDictionary[str, RunningAnswer] = WeakValueDictionary()  # use `find_running` to read it
        self._turns: OrderedDict[str, Turn] = OrderedDict()
        self._owners: dict[str, Turn] = {}  # by item id

    def keep(self, turn_id: str, turn: Turn) -> None:
        """Store a turn, unless its conversation alone exceeds the limit."""
        if sum(each.size for each in turn.conversation()) > self.limit:
            return
        self._turns[turn_id] = turn
        self._owners.update(dict.fromkeys(turn.item_ids, turn))
        self._hold(turn)
        while self.size > self.limit:
            self.forget(next(iter(self._turns)))

    def find(self, turn_id: str, key: str | None = None) -> Turn | None:
        """Return the turn with that id and mark it as used, or return None. With a key, find only turns of that key."""
        turn = _own(self._turns.get(turn_id), key)
        if turn is None:
            return None
        with suppress(KeyError):  # removed in the meantime: long requests are read in another thread
            self._turns.move_to_end(turn_id)
        return turn

    def find_running(self, turn_id: str, key: str | None = None) -> RunningAnswer | None:
        """Return the running answer with that id, or None. With a key, find only answers of that key."""
        return _own(self.running.get(turn_id), key)

    def owner(self, item_id: str, key: str | None = None) -> Turn | None:
        """Return the turn whose answer contains the item, or None. With a key, find only turns of that key."""
        return _own(self._owners.get(item_id), key)

    def forget(self, turn_id: str) -> bool:
        """Remove a turn, and return whether it was known."""
        turn = self._turns.pop(turn_id, None)
        if turn is None:
            return False
        for item_id in turn.item_ids:
            del self._owners[item_id]
        self._release(turn)
        return True

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids, least recently used first."""
        return iter(self._turns)

    def _hold(self, turn: Turn | None) -> None:
        while turn is not None:
            turn.holders += 1
            if turn.holders > 1:
                return
            self.size += turn.size
            turn = turn.previous

    def _release(self, turn: Turn | None) -> None:
        while turn is not None:
            turn.holders -= 1
            if turn.holders:
                return
            self.size -= turn.size
            turn = turn.previous


def _own(found: Kept | None, key: str | None) -> Kept | None:
    """Return the item, or None if it belongs to another key. Without keys, any client can read any item."""
    return found if found is not None and key in (None, found.key) else None
