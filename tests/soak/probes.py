"""Probes of a server in a process of their own: `python -m tests.soak.probes HOST PORT PROCESS`, until its stdin ends.

With a path, the headers and the body of a request in JSON behind these, it is a neighbour that sends this request.

Each line is the number of milliseconds that a probe took, those of them that the server itself took, and the status.
The rest is the time in which the machine had no processor for the server or for the probes, as the kernel counts it.
"""

import http.client
import itertools
import json
import os
import select
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

INTERVAL = 0.1  # seconds
PATHS = ("/ping", "/readiness", "/liveness")
LIMIT = 30.0


class Request(NamedTuple):
    """The arguments of http.client's `request`."""

    method: str
    path: str
    body: str | None = None
    headers: Mapping[str, str] = {}


def waits(process: str) -> dict[str, float]:
    """Return how long each thread of a process has waited for a processor, in seconds; none where nobody counts it."""
    found = {}
    for file in Path(f"/proc/{process}/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            found[file.parent.name] = int(file.read_text().split()[1]) / 1e9
    return found


def lost_seconds(process: str, before: Mapping[str, float]) -> float:
    """Return the seconds that the machine has cost a server since then.

    These are the waits of its main thread, and of the one other thread that waited longest: it may have the main
    thread's lock, or the work for which that waits.
    """
    waited = {thread: seconds - before.get(thread, 0.0) for thread, seconds in waits(process).items()}
    return waited.pop(process, 0.0) + max(waited.values(), default=0.0)


def probe(host: str, port: int, process: str, asked: Request) -> tuple[float, float, int]:
    """Return the seconds that a probe took, those that are the server's own, and the status."""
    own = str(os.getpid())
    connection = http.client.HTTPConnection(host, port, timeout=LIMIT)
    before, mine = waits(process), waits(own)
    begun = time.perf_counter()
    connection.request(*asked)
    response = connection.getresponse()
    response.read()
    taken = time.perf_counter() - begun
    stood = lost_seconds(process, before) + lost_seconds(own, mine)
    connection.close()
    return taken, max(0.0, taken - stood), response.status


def main() -> None:
    host, port, process, *given = sys.argv[1:]
    asked = [Request("GET", path) for path in PATHS]
    if given:
        path, headers, body = given
        asked = [Request("POST", path, body, json.loads(headers))]
    for each in itertools.cycle(asked):
        if select.select([sys.stdin], [], [], INTERVAL)[0]:
            break
        taken, own, status = probe(host, int(port), process, each)
        print(f"{taken * 1000:.2f} {own * 1000:.2f} {status} {each.path}", flush=True)


if __name__ == "__main__":
    main()
