"""What a server holds: memory, descriptors, threads, processes, tasks, and objects by their type."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.command_lines import command_line
from tests.soak.faults import workers
from tests.soak.target import Target

MEGABYTE = 1e6
MORE_OBJECTS = 50  # of a type, above which twice as many as before are a leak
CACHE = "torchinductor_*"  # of what PyTorch has compiled, which it is meant to leave for the next process
SLACK = {
    # Of another process than before, which has met other requests.
    **{"engine_threads": 3, "engine_descriptors": 3},
    # Processes that tokenize long texts and try guides, started when needed and killed if a text takes too long.
    **{"processes": 2, "descriptors": 4},
    "other_threads": 2,  # those of libraries in Rust and C++
}
# The most threads in pools, by their names without numbers. Of all others there are no more than before.
POOLS = {
    "uvloop": min(32, (os.cpu_count() or 1) + 4),  # asyncio's default executor
    "lmi-helper": 2 * 6,  # for tokenizing and for templates; their callers are the event loop and the threads below
    **dict.fromkeys(("lmi-reading", "lmi-reading-very-long", "lmi-reading-huge", "lmi-lengthy", "lmi-writing"), 1),
    **{"guide": 6, "verify-guide": 2, "adapter-files": 2},  # for vLLM
    "Thread (_create_and_wait)": 1,  # of the engine's process
}
MORE_ALLOCATED = 8.0  # MB, of which the C library's free memory between them is no part: more is a leak
HELPER_MEMORY = 200.0  # MB of a process that has tokenized the longest text, of which there may have been none before
MORE_BLOCKS = 0.05  # of the blocks of Python's allocator
HELPER = "lmi_core.forks.calls"  # in the command line


@dataclass
class Footprint:
    """What the server's process holds, and its engine's."""

    memory: float = 0.0  # MB that are the server's alone
    allocated: float = 0.0  # MB of these that are in use, as the C library counts them
    blocks: int = 0  # of memory that Python's allocator has given out
    helper_memory: float = 0.0  # MB of the largest process that tokenizes long texts, or compiles guides
    descriptors: int = 0
    threads: int = 0
    engine_memory: float = 0.0
    engine_descriptors: int = 0
    engine_threads: int = 0
    processes: int = 0  # children of the server, and theirs
    in_flight: int = 0
    tasks: dict[str, int] = field(default_factory=dict)
    objects: dict[str, int] = field(default_factory=dict)
    thread_names: dict[str, int] = field(default_factory=dict)  # Python's

    @property
    def other_threads(self) -> int:
        return self.threads - sum(self.thread_names.values())


def sizes(server: int) -> Footprint:
    """Return what the system tells of the server and its engine."""
    process = psutil.Process(server)
    found = Footprint(
        memory=process.memory_full_info().uss / MEGABYTE,
        descriptors=process.num_fds(),
        threads=process.num_threads(),
    )
    engines = workers(server)
    of_engines = [child for engine in engines for child in engine.children() if "VLLM::" in " ".join(child.cmdline())]
    for worker in [*engines, *of_engines]:
        found.engine_memory += worker.memory_full_info().uss / MEGABYTE
        found.engine_descriptors += worker.num_fds()
        found.engine_threads += worker.num_threads()
    children = process.children(recursive=True)
    found.processes = len(children)
    helpers = [child for child in children if HELPER in command_line(child)]
    found.helper_memory = max((child.memory_full_info().uss / MEGABYTE for child in helpers), default=0.0)
    return found


async def footprint(server: int, target: Target) -> Footprint:
    """Return what the system and the server itself tell; to be asked while nothing is generated."""
    inside = await target.get("/soak/inside")
    found = sizes(server)
    found.tasks, found.objects, found.in_flight = inside["tasks"], inside["objects"], inside["in_flight"]
    found.thread_names = inside["threads"]
    found.allocated, found.blocks = inside["allocated"] / MEGABYTE, inside["blocks"]
    return found


def leaks(before: Footprint, after: Footprint, memory_bound: float, slack: int) -> Iterator[str]:
    """Yield what there is more of than before; of memory, more than the bound in MB, of others, `slack` times SLACK."""
    bounds = {"allocated": slack * MORE_ALLOCATED}
    bounds |= dict.fromkeys(("memory", "engine_memory", "helper_memory"), memory_bound)
    for name, bound in bounds.items():
        old, new = getattr(before, name), getattr(after, name)
        if name == "helper_memory":
            old = max(old, HELPER_MEMORY - bound)
        if new > old + bound:
            yield f"{name}: {new:.0f} MB, and {old:.0f} before"
    if after.blocks > (1 + slack * MORE_BLOCKS) * before.blocks:
        yield f"blocks of memory: {after.blocks}, and {before.blocks} before"
    for name in ("descriptors", "other_threads", "engine_descriptors", "engine_threads", "processes", "in_flight"):
        if getattr(after, name) > getattr(before, name) + slack * SLACK.get(name, 0):
            yield f"{name}: {getattr(after, name)}, and {getattr(before, name)} before"
    for name, count in after.thread_names.items():
        if count > max(before.thread_names.get(name, 0), POOLS.get(name, 0)):
            yield f"threads called {name}: {count}, and {before.thread_names.get(name, 0)} before"
    for name, count in after.tasks.items():
        if count > before.tasks.get(name, 0):
            yield f"tasks of {name}: {count}, and {before.tasks.get(name, 0)} before"
    for name, count in after.objects.items():
        if count > 2 * before.objects.get(name, 0) + MORE_OBJECTS:
            yield f"objects of {name}: {count}, and {before.objects.get(name, 0)} before"


def leftovers(folder: Path, processes: list[psutil.Process]) -> Iterator[str]:
    """Yield what is left of a server that has ended: its processes, and entries of its temporary folder."""
    _, alive = psutil.wait_procs(processes, timeout=10)
    yield from (f"process {each.pid} is left" for each in alive)
    yield from (f"{path} is left" for path in folder.iterdir() if not path.match(CACHE))
