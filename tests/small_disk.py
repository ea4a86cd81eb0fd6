"""Disks that are full: a small file system of their own, and a limit on files that needs no rights."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """A file system in memory, of a few megabytes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resize(self, size: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", self.folder], check=True, capture_output=True)

    def fill(self) -> Path:
        """Take all the space that is left with a file, and return it."""
        file = self.folder / "filling"
        status = os.statvfs(self.folder)
        file.write_bytes(bytes(status.f_bavail * status.f_frsize))
        return file

    @property
    def used(self) -> int:
        status = os.statvfs(self.folder)
        return (status.f_blocks - status.f_bfree) * status.f_frsize


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """Mount a disk of this size, in bytes, on a new folder. Skip the test where that takes rights that it lacks."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True, capture_output=True)
