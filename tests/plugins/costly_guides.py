"""Guides of a few bytes that take minutes to compile or to follow, and the processes that compile guides."""

import asyncio
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

SERVER = "lmi_core.forks.calls"
SOON = 60.0  # seconds for answers, on a machine that does much else


def optional_letters(count: int) -> str:
    return "root ::= " + " ".join(f'"{"abcdefghij"[i % 10]}"?' for i in range(count))


BOMBS: dict[str, dict[str, Any]] = {
    "nested repetitions": {"guided_regex": "(((.{1,99}){1,99}){1,99}){1,99}"},
    "ambiguity": {"guided_grammar": "root ::= e\ne ::= e e | [a-z]"},
    "optional letters": {"guided_grammar": optional_letters(2000)},
    "more optional letters": {"guided_grammar": optional_letters(10_000)},
    "large enum": {"guided_json": {"enum": [f"value {i}" for i in range(100_000)]}},
    "many choices": {"guided_choice": [f"choice {i}" for i in range(100_000)]},
    "no text": {"guided_grammar": "root ::= root"},
    "schema of itself": {"guided_json": {"$ref": "#"}},
    "deep groups": {"guided_regex": "(" * 200_000 + "a" + ")" * 200_000},
}


def processes(name: str, ancestor: int | None = None) -> dict[int, int]:
    """Return the parents of the processes with a name in their command line that descend from this one, or another."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                found[int(entry.name)] = parent, (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:  # it has ended
                continue
    below, previous = {ancestor or os.getpid()}, 0
    while len(below) > previous:
        previous = len(below)
        below |= {process for process, (parent, _) in found.items() if parent in below}
    return {process: found[process][0] for process in below if process in found and name in found[process][1]}


def forks() -> dict[int, int]:
    """Return the processes that compile a guide now, with those that they were forked from."""
    found = processes(SERVER)
    return {process: parent for process, parent in found.items() if found.get(parent) in found}


async def next_fork(known: Collection[int]) -> int:
    """Wait for a process that compiles a guide besides the known ones, some of which end a little after they answer."""
    async with asyncio.timeout(SOON):
        while not (found := forks().keys() - set(known)):
            await asyncio.sleep(0.05)
    (fork,) = found
    return fork


def is_running(process: int) -> bool:
    """Return whether a process runs; one that has ended, and that nobody has waited for, has no command line."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except OSError:
        return False


async def eventually(condition: Callable[[], bool], seconds: float = SOON) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)
