"""The sessions of a model: ids that route a client's requests to the same instance."""

import uuid
from time import monotonic, time
from typing import NamedTuple

from lmi_core.errors import InvalidPayload, Overloaded

MAX_SESSIONS = 100_000  # of one model; each takes a few hundred bytes


class Session(NamedTuple):
    """An open session, which belongs to the holder of an API key if keys are in use."""

    session_id: str
    key: str | None
    expires: float  # seconds since 1970, as clients are told
    deadline: float  # of the clock that nobody sets


class Sessions:
    """The open sessions of one model, which end on request or after `seconds`.

    They keep no state of their own: earlier requests of a session are in the engine's prefix cache.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._open: dict[str, Session] = {}  # in the order of their ends

    def begin(self, key: str | None = None) -> Session:
        """Open a session for the holder of an API key, if any. Raise Overloaded if there are too many."""
        self._remove_expired()
        if len(self._open) >= MAX_SESSIONS:
            raise Overloaded(f"there are {MAX_SESSIONS} open sessions, the most that a model has")
        session = Session(str(uuid.uuid4()), key, time() + self._seconds, monotonic() + self._seconds)
        self._open[session.session_id] = session
        return session

    def check(self, session_id: str, key: str | None = None) -> None:
        """Raise InvalidPayload if no such session is open, or if it belongs to another key."""
        self._remove_expired()
        session = self._open.get(session_id)
        if session is None or key not in (None, session.key):
            raise InvalidPayload(
                f"there is no session {session_id!r}: it was closed, has expired, or is of another server"
            )

    def end(self, session_id: str, key: str | None = None) -> None:
        """Close a session. Raise InvalidPayload if no such session is open, or if it belongs to another key."""
        self.check(session_id, key)
        del self._open[session_id]

    def _remove_expired(self) -> None:
        now = monotonic()
        while self._open and (oldest := next(iter(self._open.values()))).deadline <= now:
            del self._open[oldest.session_id]
