"""A queue in which clients take turns."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ClientQueue(Generic[T]):
    """A queue that serves clients in turn, and each client's items in order of arrival."""

    def __init__(self) -> None:
        self._by_client: OrderedDict[str, deque[T]] = OrderedDict()  # ordered by turn, the next client first
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        for waiting in self._by_client.values():
            yield from waiting

    @property
    def next(self) -> T:
        """The item that `pop` would return."""
        return next(self.of_each_client())

    def of_each_client(self) -> Iterator[T]:
        """Yield the oldest item of each client, in the order of the clients' turns."""
        for waiting in self._by_client.values():
            yield waiting[0]

    def add(self, client: str, item: T) -> None:
        self._by_client.setdefault(client, deque()).append(item)
        self._size += 1

    def pop(self) -> T:
        """Remove and return the next item; the other clients are next. Raise StopIteration if the queue is empty."""
        client = next(iter(self._by_client))
        waiting = self._by_client[client]
        item = waiting.popleft()
        self._size -= 1
        if waiting:
            self._by_client.move_to_end(client)
        else:
            del self._by_client[client]
        return item

    def discard(self, client: str, item: T) -> None:
        """Remove an item that no longer waits; do nothing if it has already been popped."""
        waiting = self._by_client.get(client)
        if waiting is None or item not in waiting:
            return
        waiting.remove(item)
        self._size -= 1
        if not waiting:
            del self._by_client[client]
