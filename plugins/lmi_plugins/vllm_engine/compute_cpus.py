"""Where vLLM computes on CPUs, those that it binds its workers to are theirs alone.

vLLM leaves some CPUs to all else, but does not keep it there: it then takes turns with the workers, and they wait.

Its core looks for what the workers have done without ever sleeping, and gives its CPU up after each look. Linux lets it
look again once who shares that CPU sleeps or gives it up too, or else at a tick, milliseconds later. The workers wait.

Threads that only pass messages are many, and each would interrupt the core or the server whenever it wakes: here it
waits until they sleep or give the CPU up.
"""

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import psutil  # which vLLM requires

MESSENGERS = ("ZMQbg", "gloo")  # threads that only pass messages; those of a worker inherit its binding
ALL = frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset[int]()

logger = logging.getLogger(__name__)


class Thread(NamedTuple):
    id: int
    name: str
    cpus: frozenset[int]


def leave_to_workers() -> bool:
    """Once vLLM's workers compute: this process, and all else of vLLM's, moves to the other CPUs.

    There, threads that pass messages interrupt nobody. Nothing is done where there are no such CPUs, nor beside workers
    that are not bound. Returns whether anything was.
    """
    workers, others = list[Thread](), _threads(os.getpid())
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            (workers if process.name().startswith("VLLM::Worker") else others).extend(_threads(process.pid))
    bound = frozenset[int]().union(*(thread.cpus for thread in workers if thread.cpus < ALL))
    left = ALL - bound
    if not bound or not left:
        return False
    logger.info("vLLM computes on CPU %s; all else keeps to CPU %s", _listed(bound), _listed(left))
    _move([thread for thread in others if thread.cpus == ALL], left)
    _move([thread for thread in workers if thread.name.startswith(MESSENGERS)], left)
    _let_others_finish(thread for thread in (*others, *workers) if thread.name.startswith(MESSENGERS))
    return True


def let_core_look() -> None:
    """Between two pieces of this process' work: a core on the same CPU looks for what its workers have done."""
    os.sched_yield()


def share_again() -> None:
    """Before vLLM starts: its processes choose among the CPUs of the one that starts them."""
    if sys.platform == "linux":
        cpus = os.sched_getaffinity(os.getpid())
        _move([thread for thread in _threads(os.getpid()) if thread.cpus == cpus], ALL)  # others are bound one by one


def _threads(process_id: int) -> list[Thread]:
    return list(_read_threads(process_id)) if sys.platform == "linux" else []


def _read_threads(process_id: int) -> Iterator[Thread]:
    with suppress(OSError):  # the process has ended
        for name in os.listdir(f"/proc/{process_id}/task"):
            with suppress(OSError), open(f"/proc/{process_id}/task/{name}/comm") as comm:
                yield Thread(int(name), comm.read(), frozenset(os.sched_getaffinity(int(name))))


def _move(threads: Iterable[Thread], cpus: frozenset[int]) -> None:
    for thread in threads:
        with suppress(OSError):  # it has ended, or somebody has forbidden it
            os.sched_setaffinity(thread.id, cpus)


def _let_others_finish(threads: Iterable[Thread]) -> None:
    """When they wake, they do not interrupt who has the CPU."""
    for thread in threads:
        with suppress(OSError):  # it has ended, or somebody has forbidden it
            os.sched_setscheduler(thread.id, os.SCHED_BATCH, os.sched_param(0))


def _listed(cpus: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(cpus)))
