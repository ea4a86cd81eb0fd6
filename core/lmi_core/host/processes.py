"""Processes and their descendants, on Linux: their memory, their start times, and their end."""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROCESSES = Path("/proc")
STATE, SESSION = 0, 3  # indices in `stat`, counted after the name
ZOMBIE = "Z"
START = 19  # index in `stat`, counted after the name: clock ticks from the system's boot to the start of the process
BOOT = "btime "  # precedes the seconds since 1970 in the system's `stat`
RESIDENT = 1  # index in `statm`: pages in main memory
END_SECONDS = 2.0  # that processes have to exit after SIGTERM before they are killed
LOOK_SECONDS = 0.02


class Process(NamedTuple):
    """A living process. Systems reuse process ids, but not with the same start time."""

    process_id: int
    started: str


class ProcessMemory(NamedTuple):
    """The main memory of a process in bytes, including shared pages."""

    process_id: int
    resident: int


def process_tree(process_id: int, root: Path = PROCESSES) -> list[ProcessMemory]:
    """Return a process and its descendants with their memory; empty if unknown, or if the process has ended."""
    found, unread, page = [], [process_id], os.sysconf("SC_PAGE_SIZE")
    seen = {process_id}
    while unread:
        current = unread.pop()
        try:
            pages = int((root / str(current) / "statm").read_text().split()[RESIDENT])
            children = [child for child in _children(root / str(current)) if child not in seen]
        except (OSError, ValueError, IndexError):  # it has exited
            continue
        found.append(ProcessMemory(current, pages * page))
        unread += children
        seen.update(children)
    return found


def memory_of(process_ids: Mapping[str, list[int]], root: Path = PROCESSES) -> dict[str, int]:
    """Return the memory of each group of processes with their descendants, without groups that have ended."""
    found = {}
    for name, roots in process_ids.items():
        members = {each for process_id in roots for each in process_tree(process_id, root)}
        if members:
            found[name] = sum(each.resident for each in members)
    return found


def start_time(process_id: int, root: Path = PROCESSES) -> float | None:
    """Return the start time of a process, in seconds since 1970; None if unknown, or if the process has ended."""
    try:
        behind_name = (root / str(process_id) / "stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in (root / "stat").read_text().splitlines() if line.startswith(BOOT))
        return int(boot.removeprefix(BOOT)) + int(behind_name[START]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def descendants(process_id: int) -> set[Process]:
    """Return the living descendants of a process; empty if it has ended."""
    found = (_read(PROCESSES / str(each.process_id)) for each in process_tree(process_id))
    return {status.process for status in found if status and status.process.process_id != process_id}


def end_session(session: int, known: set[Process]) -> None:
    """End all processes in a session, their descendants, and the `known` ones: by SIGTERM, then by SIGKILL.

    This process itself is not ended. The others have END_SECONDS to release resources that outlive a process.
    """
    deadline = time.monotonic() + END_SECONDS
    asked = set[Process]()
    while (left := _left(session, known)) and time.monotonic() < deadline + END_SECONDS:
        late = time.monotonic() >= deadline
        for each in left if late else left - asked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each.process_id, signal.SIGKILL if late else signal.SIGTERM)
        asked |= left
        known = known | left.union(*(descendants(each.process_id) for each in left))
        time.sleep(LOOK_SECONDS)


def _left(session: int, known: set[Process]) -> set[Process]:
    """Return the living processes of a session, and the known ones, except for this process."""
    found = (_read(folder) for folder in PROCESSES.iterdir() if folder.name.isdigit()) if PROCESSES.is_dir() else ()
    living = {status.process for status in found if status and (status.session == session or status.process in known)}
    return {process for process in living if process.process_id != os.getpid()}


class _Status(NamedTuple):
    process: Process
    session: int


def _read(folder: Path) -> _Status | None:
    """Return the status of a living process; None if it has ended."""
    try:
        stat = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if stat[STATE] == ZOMBIE else _Status(Process(int(folder.name), stat[START]), int(stat[SESSION]))


def _children(folder: Path) -> Iterator[int]:
    """Yield the child processes of all threads of a process."""
    for thread in (folder / "task").iterdir():
        try:
            yield from map(int, (thread / "children").read_text().split())
        except OSError:  # the thread has exited
            continue
