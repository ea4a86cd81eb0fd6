"""Processes and their descendants: their memory, their start times, and their end."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress

import psutil

END_SECONDS = 2.0  # for processes to end at SIGTERM before they are killed
LOOK_SECONDS = 0.02


def process_tree(process_id: int) -> set[psutil.Process]:
    """Return a process and its descendants; empty if it has ended."""
    return _trees([process_id], _children())


def memory_of(process_ids: Mapping[str, list[int]]) -> dict[str, int]:
    """Return the memory of each group of processes with their descendants, without groups that have ended.

    It is in bytes of main memory, including shared pages.
    """
    children, found = _children(), {}
    for name, roots in process_ids.items():
        members = _trees(roots, children)
        if members:
            found[name] = sum(map(_resident, members))
    return found


def _children() -> Mapping[int, list[psutil.Process]]:
    """Return the children of each process, which takes as long for all processes as for one."""
    found = defaultdict[int, list[psutil.Process]](list)
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            found[each.ppid()].append(each)
    return found


def _trees(roots: Iterable[int], children: Mapping[int, list[psutil.Process]]) -> set[psutil.Process]:
    """Return the processes with these ids that have not ended, and their descendants."""
    found, unread = set[psutil.Process](), list[psutil.Process]()
    for root in roots:
        with suppress(psutil.Error):
            unread.append(psutil.Process(root))
    while unread:
        if (each := unread.pop()) not in found:
            found.add(each)
            unread += children.get(each.pid, ())
    return found


def start_time(process_id: int) -> float | None:
    """Return the start time of a process, in seconds since 1970; None if it has ended."""
    with suppress(psutil.Error):
        return psutil.Process(process_id).create_time()
    return None


def descendants(process_id: int) -> set[psutil.Process]:
    """Return the descendants of a process; empty if it has ended."""
    return {each for each in process_tree(process_id) if each.pid != process_id}


def end_session(session: int, known: set[psutil.Process]) -> None:
    """End all processes in a session, their descendants, and the `known` ones: by SIGTERM, then by SIGKILL.

    This process itself is not ended. The others have END_SECONDS to release resources that outlive a process.
    """
    deadline = time.monotonic() + END_SECONDS
    asked = set[psutil.Process]()
    while (left := _remaining(session, known)) and time.monotonic() < deadline + END_SECONDS:
        late = time.monotonic() >= deadline
        for each in left if late else left - asked:
            with suppress(psutil.Error):
                each.kill() if late else each.terminate()
        asked |= left
        known = known | _trees([each.pid for each in left], _children())
        time.sleep(LOOK_SECONDS)


def _remaining(session: int, known: set[psutil.Process]) -> set[psutil.Process]:
    """Return the living processes of a session, and the known ones, except for this process."""
    found = (each for each in {*psutil.process_iter(), *known} if each in known or _session(each) == session)
    return {each for each in found if each.pid != os.getpid() and _lives(each)}


def _session(process: psutil.Process) -> int | None:
    with suppress(OSError):
        return os.getsid(process.pid)
    return None


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0
