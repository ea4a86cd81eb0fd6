"""Pausing of processes, as even an idle engine takes CPU time from the measured one."""

from collections.abc import Iterator
from contextlib import contextmanager

import psutil


def pause(process_id: int) -> None:
    """Pause a process and all its descendants."""
    for process in _tree(process_id):
        process.suspend()


def resume(process_id: int) -> None:
    for process in _tree(process_id):
        process.resume()


@contextmanager
def resumed(process_id: int) -> Iterator[None]:
    """Resume a paused process until the context ends."""
    resume(process_id)
    try:
        yield
    finally:
        pause(process_id)


def _tree(process_id: int) -> list[psutil.Process]:
    if not psutil.pid_exists(process_id):
        return []
    process = psutil.Process(process_id)
    return [process, *process.children(recursive=True)]
