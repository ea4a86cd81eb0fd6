import os
from pathlib import Path

import pytest

from lmi_core.script.djl_names.sessions import CREATED, SessionManager


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
    manager.create_session()
    assert sorted(os.listdir(manager.sessions_path)) != []
    assert (old.files_path.exists(), young.files_path.exists()) == (False, True)
