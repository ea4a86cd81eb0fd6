"""`Session`, `SessionManager`."""

import os
import pickle
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["Session", "SessionManager"]

SESSION_ID = re.compile(r"[0-9a-f-]{36}")
CREATED = ".creation_time"
CHECKED_AT_ONCE = 16  # sessions checked whenever another one begins
SHARED_MEMORY = Path("/dev/shm")


class Session:
    """Values by name, shared by all processes of the model."""

    def __init__(self, session_id: str, session_root: str | Path) -> None:
        self.session_id = session_id
        self.files_path = Path(session_root) / session_id

    def put(self, key: str, value: object) -> None:
        self._path(key).write_bytes(pickle.dumps(value))

    def get(self, key: str, d: Any = None) -> Any:
        """Return the value put under the name, or `d`."""
        try:
            return pickle.loads(self._path(key).read_bytes())
        except FileNotFoundError:
            return d

    def get_as_numpy(self, key: str, shape: tuple[int, ...], dtype: Any = "float32", create: bool = False) -> Any:
        """Return a memory-mapped array; writes to it are kept."""
        import numpy

        return numpy.memmap(self._path(key), dtype=dtype, mode="w+" if create else "r+", shape=shape)

    def remove(self) -> bool:
        """Remove the session, and return whether it existed."""
        existed = self.files_path.is_dir()
        shutil.rmtree(self.files_path, ignore_errors=True)
        return existed

    def _path(self, key: str) -> Path:
        return self.files_path / key.replace("/", "-")


class SessionManager:
    """The sessions of a model, set by its properties `sessions_path` and `sessions_expiration` (seconds)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.expiration = int(properties.get("sessions_expiration", 20 * 60))
        parent = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
        self.sessions_path = Path(properties.get("sessions_path", parent / "djl_sessions"))
        self.sessions_path.mkdir(parents=True, exist_ok=True)
        self._unchecked: list[str] = []

    def create_session(self) -> Session:
        self._remove_expired()
        session = Session(str(uuid.uuid4()), self.sessions_path)
        session.files_path.mkdir()
        session.put(CREATED, time.time())
        return session

    def get_session(self, session_id: str) -> Session | None:
        session = self._session(session_id)
        return session if session.files_path.is_dir() else None

    def close_session(self, session_id: str) -> None:
        self._session(session_id).remove()

    def _session(self, session_id: str) -> Session:
        if not SESSION_ID.fullmatch(session_id or ""):
            raise ValueError(f"invalid session id: {session_id!r}")
        return Session(session_id, self.sessions_path)

    def _remove_expired(self) -> None:
        """Check the next few sessions, and remove those that have expired.

        If the clock was set back after a session started, its lifetime starts again. Checking all sessions would take
        ever longer: a tenth of a second for 5,000 sessions.
        """
        self._unchecked = self._unchecked or os.listdir(self.sessions_path)
        for name in self._unchecked[-CHECKED_AT_ONCE:]:
            session = Session(name, self.sessions_path)
            created, now = session.get(CREATED), time.time()  # None: another process is still creating it
            if created is not None and created > now:
                with suppress(FileNotFoundError):  # closed in the meantime
                    session.put(CREATED, now)
            elif created is not None and now - created > self.expiration:
                session.remove()
        del self._unchecked[-CHECKED_AT_ONCE:]
