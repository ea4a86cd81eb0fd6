"""The memory of processes and of those that they have started, and when they began, as Linux tells it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PROCESSES = Path("/proc")
START = 19  # the index, in `stat` behind the name, of the clock ticks from the system's start to that of the process
BOOT = "btime "  # in the system's `stat`, before the seconds since 1970
RESIDENT = 1  # the index, in `statm`, of the pages that are in main memory


class ProcessMemory(NamedTuple):
    """The main memory of a process, in bytes, with pages that it shares with others."""

    process_id: int
    resident: int


def process_tree(process_id: int, root: Path = PROCESSES) -> list[ProcessMemory]:
    """Return a process and its descendants with their memory; none where that is unknown, or the process is gone."""
    found, unread, page = [], [process_id], os.sysconf("SC_PAGE_SIZE")
    seen = {process_id}
    while unread:
        current = unread.pop()
        try:
            pages = int((root / str(current) / "statm").read_text().split()[RESIDENT])
            children = [child for child in _children(root / str(current)) if child not in seen]
        except (OSError, ValueError, IndexError):  # it has ended meanwhile
            continue
        found.append(ProcessMemory(current, pages * page))
        unread += children
        seen.update(children)
    return found


def memory_of(process_ids: Mapping[str, list[int]], root: Path = PROCESSES) -> dict[str, int]:
    """Return the memory of each group of processes with their descendants, but for groups of which none is known."""
    found = {}
    for name, roots in process_ids.items():
        members = {each for process_id in roots for each in process_tree(process_id, root)}
        if members:
            found[name] = sum(each.resident for each in members)
    return found


def start_time(process_id: int, root: Path = PROCESSES) -> float | None:
    """Return when a process began, in seconds since 1970; None where that is unknown, or the process is gone."""
    try:
        behind_name = (root / str(process_id) / "stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in (root / "stat").read_text().splitlines() if line.startswith(BOOT))
        return int(boot.removeprefix(BOOT)) + int(behind_name[START]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _children(folder: Path) -> Iterator[int]:
    """Yield the processes that a process has started, of which each of its threads has those of its own."""
    for thread in (folder / "task").iterdir():
        try:
            yield from map(int, (thread / "children").read_text().split())
        except OSError:  # the thread has ended
            continue
