"""The sessions of a model: ids by which clients come back to the instance that gave them."""

import uuid
from time import time
from typing import NamedTuple

from lmi_core.errors import InvalidPayload, Overloaded

MAX_SESSIONS = 100_000  # of one model; each takes a few hundred bytes


class Session(NamedTuple):
    session_id: str
    expires: float  # seconds since 1970


class Sessions:
    """The open sessions of one model, which end on request or after `seconds`.

    Requests of a session are like any others: what the engine keeps of earlier ones, its prefix cache finds.
    """

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._open: dict[str, Session] = {}  # in the order of their ends

    def begin(self) -> Session:
        """Open a session. Raise Overloaded where there are too many."""
        self._remove_expired()
        if len(self._open) >= MAX_SESSIONS:
            raise Overloaded(f"there are {MAX_SESSIONS} open sessions, the most that a model has")
        session = Session(str(uuid.uuid4()), time() + self._seconds)
        self._open[session.session_id] = session
        return session

    def check(self, session_id: str) -> None:
        """Raise InvalidPayload where no such session is open."""
        self._remove_expired()
        if session_id not in self._open:
            raise InvalidPayload(
                f"there is no session {session_id!r}: it was closed, has expired, or is of another server"
            )

    def end(self, session_id: str) -> None:
        """Close a session. Raise InvalidPayload where no such session is open."""
        self.check(session_id)
        del self._open[session_id]

    def _remove_expired(self) -> None:
        now = time()
        while self._open and (oldest := next(iter(self._open.values()))).expires <= now:
            del self._open[oldest.session_id]
