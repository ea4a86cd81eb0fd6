"""The latest errors of a server, for its operators."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

KEPT = 100  # of the server's errors, and as many of clients' errors
MAX_LENGTH = 1000  # characters of a message
GIVEN = " Given: "  # precedes the rejected value in messages
FAULTS_OF_SERVER = frozenset(  # kinds; a status is less precise, because 424 may be the fault of either
    {
        "backend_given_up",
        "backend_unhealthy",
        "configuration",
        "formatter_failed",
        "generation_failed",
        "generation_timeout",
        "internal",
        "model_not_ready",
        "out_of_memory",
        "overloaded",
        "plugin",
    }
)


@dataclass(slots=True)
class RecentError:
    """An error of a request, or of several consecutive ones with the same error; the details are those of the last."""

    number: int  # increases with each error
    time: float  # seconds since 1970
    model: str  # "" if no model was found
    request_id: str
    path: str
    status: int
    kind: str
    message: str
    count: int = 1

    @property
    def is_of_server(self) -> bool:
        """Whether the server or its load caused the error, not the request."""
        return self.kind in FAULTS_OF_SERVER


class RecentErrors:
    """A bounded number of errors, separately for clients and the server, so that many client errors do not displace
    server errors. They contain no input: messages are cut before the refused value, which may be a prompt, or a key
    in the wrong place.
    """

    def __init__(self, kept: int = KEPT) -> None:
        self.latest = 0  # the number of the most recent error
        self._of_clients: deque[RecentError] = deque(maxlen=kept)
        self._of_server: deque[RecentError] = deque(maxlen=kept)

    def add(self, error: RecentError) -> None:
        """Add an error and number it; an error equal to the last one increases its count."""
        self.latest += 1
        error.number, error.path = self.latest, error.path[:MAX_LENGTH]
        kept = self._of_server if error.is_of_server else self._of_clients
        if kept and _key(kept[-1]) == _key(error):
            error.count = kept.pop().count + 1
        kept.append(error)

    def __iter__(self) -> Iterator[RecentError]:
        """Yield the errors, most recent first."""
        yield from sorted([*self._of_clients, *self._of_server], key=lambda error: error.number, reverse=True)


def without_values(message: str) -> str:
    """Return an error's message in one line, without the value that it refuses."""
    return " ".join(message.splitlines()).partition(GIVEN)[0][:MAX_LENGTH]


def _key(error: RecentError) -> tuple[str, str, int, str, str]:
    return error.model, error.path, error.status, error.kind, error.message
