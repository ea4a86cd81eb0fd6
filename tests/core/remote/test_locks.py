"""Locks that a process holds several times, seen as another process sees them: by another descriptor."""

from pathlib import Path

from lmi_core.remote.locks import held_locks, hold, release, try_exclusive


def test_a_lock_is_let_go_with_its_last_holder(tmp_path: Path) -> None:
    lock = tmp_path / "copy.lock"
    hold(lock)
    hold(lock)
    release(lock)
    assert lock in held_locks()
    with try_exclusive(lock) as free:
        assert not free
    release(lock)
    assert lock not in held_locks()
    with try_exclusive(lock) as free:
        assert free
