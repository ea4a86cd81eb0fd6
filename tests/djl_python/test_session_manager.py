import time
from pathlib import Path

import pytest

from djl_python.session_manager import CHECKED_AT_ONCE, CREATED, Session, SessionManager


@pytest.fixture
def manager(tmp_path: Path) -> SessionManager:
    return SessionManager({"sessions_path": str(tmp_path / "sessions"), "sessions_expiration": "60"})


def test_values_are_kept(manager: SessionManager) -> None:
    session = manager.create_session()
    session.put("a/b", {"x": [1]})
    found = manager.get_session(session.session_id)
    assert found is not None
    assert (found.get("a/b"), found.get("c"), found.get("c", 5)) == ({"x": [1]}, None, 5)


def test_array_is_the_file(manager: SessionManager) -> None:
    session = manager.create_session()
    session.get_as_numpy("state", (2, 2), create=True)[1, 1] = 7
    assert session.get_as_numpy("state", (2, 2)).tolist() == [[0, 0], [0, 7]]


def test_close(manager: SessionManager) -> None:
    session = manager.create_session()
    manager.close_session(session.session_id)
    assert manager.get_session(session.session_id) is None
    assert not session.remove()


@pytest.mark.parametrize("session_id", ["", "../../etc", "x" * 36])
def test_id_that_no_session_can_have(manager: SessionManager, session_id: str) -> None:
    with pytest.raises(ValueError, match="invalid session id"):
        manager.get_session(session_id)


def test_expired_sessions_are_removed_when_another_begins(manager: SessionManager) -> None:
    old, young = manager.create_session(), manager.create_session()
    old.put(CREATED, 0.0)
    for _ in range(2):  # the second looks at what came after the first listing
        manager.create_session()
    assert [each.files_path.exists() for each in (old, young)] == [False, True]


@pytest.mark.parametrize("seconds", [1.0, 1e6])
def test_sessions_outlive_a_clock_that_is_set_back_but_not_for_good(manager: SessionManager, seconds: float) -> None:
    session = manager.create_session()
    session.put(CREATED, time.time() + seconds)
    for _ in range(2):
        manager.create_session()
    assert session.files_path.exists()
    assert 0 <= time.time() - session.get(CREATED) < 60


def test_many_sessions_cost_the_next_one_nothing(manager: SessionManager, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [manager.create_session() for _ in range(10 * CHECKED_AT_ONCE)]
    read = list[str]()
    monkeypatch.setattr(Session, "get", lambda self, key, d=None: read.append(self.session_id))
    manager.create_session()
    assert len(read) <= CHECKED_AT_ONCE
    for _ in many:
        manager.create_session()
    assert {each.session_id for each in many} <= set(read)
