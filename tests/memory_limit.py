"""A limit on the memory of processes, beyond which the system kills one of them: a control group of the kernel."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

CGROUPS = Path("/sys/fs/cgroup")
SECONDS = 30.0


class MemoryLimit:
    """A control group; processes that are created by one in it are in it too."""

    def __init__(self, folder: Path, limit: Path) -> None:
        self._folder = folder
        self._limit = limit

    def set(self, size: int) -> None:
        self._limit.write_text(str(size))

    def add(self, process_id: int) -> None:
        """Move a process into the group; the memory that it has stays where it was counted."""
        (self._folder / "cgroup.procs").write_text(str(process_id))


@contextmanager
def memory_limit() -> Iterator[MemoryLimit]:
    """Create a control group, whose processes must end soon after the test. Skip the test without rights for it."""
    root = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
    folder = root / f"lmi-{uuid.uuid4()}"
    with suppress(OSError):
        folder.mkdir()
    limits = [folder / name for name in ("memory.limit_in_bytes", "memory.max") if (folder / name).exists()]
    try:
        if not limits:
            pytest.skip("control groups cannot be created here, or do not limit memory")
        yield MemoryLimit(folder, limits[0])
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove the group once the kernel has let go of its processes, which has no event to wait for."""
    last = time.monotonic() + SECONDS
    while folder.is_dir():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > last:
                raise
            time.sleep(0.05)
