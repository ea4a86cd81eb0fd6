"""The sessions of a model: ids that route a client's requests to the same instance."""

import uuid
from collections import Counter
from time import monotonic, time
from typing import NamedTuple

from lmi_core.errors import InvalidPayload, Overloaded

MAX_SESSIONS = 100_000  # per model; each takes a few hundred bytes


class Session(NamedTuple):
    """An open session, which belongs to the holder of an API key if keys are in use."""

    session_id: str
    key: str | None
    expires: float  # seconds since 1970, as sent to clients
    deadline: float  # on the monotonic clock


class Sessions:
    """The open sessions of one model, which end on request or after `seconds`.

    They keep no state of their own: earlier requests of a session are in the engine's prefix cache.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._open: dict[str, Session] = {}  # ordered by deadline
        self._by_key = Counter[str | None]()

    def begin(self, key: str | None = None) -> Session:
        """Open a session for the holder of an API key, if any.

        Raise Overloaded if there are too many, or if too few would be left for other keys.
        """
        self._remove_expired()
        left = MAX_SESSIONS - len(self._open)
        if left <= 0:
            raise Overloaded(f"there are {MAX_SESSIONS} open sessions, the maximum of a model")
        if key is not None and self._by_key[key] >= left:
            raise Overloaded(f"this key has {self._by_key[key]} open sessions: the remaining ones are for other keys")
        session = Session(str(uuid.uuid4()), key, time() + self._seconds, monotonic() + self._seconds)
        self._open[session.session_id] = session
        self._by_key[key] += 1
        return session

    def check(self, session_id: str, key: str | None = None) -> None:
        """Raise InvalidPayload if no such session is open, or if it belongs to another key."""
        self._remove_expired()
        session = self._open.get(session_id)
        if session is None or key not in (None, session.key):
            raise InvalidPayload(
                f"there is no session {session_id!r}: it was closed, has expired, or belongs to another server"
            )

    def end(self, session_id: str, key: str | None = None) -> None:
        """Close a session. Raise InvalidPayload if no such session is open, or if it belongs to another key."""
        self.check(session_id, key)
        self._remove(session_id)

    def _remove_expired(self) -> None:
        now = monotonic()
        while self._open and (oldest := next(iter(self._open.values()))).deadline <= now:
            self._remove(oldest.session_id)

    def _remove(self, session_id: str) -> None:
        key = self._open.pop(session_id).key
        self._by_key[key] -= 1
        if not self._by_key[key]:
            del self._by_key[key]
