"""Probes of a server in a process of their own: `python -m tests.soak.probes HOST PORT PROCESS`, until its stdin ends.

Each line is the number of milliseconds that a probe took, those of them that the server itself took, and the status.
The rest is the time in which the machine had no processor for the server or for the probes, as the kernel counts it.
"""

import http.client
import select
import sys
import time
from pathlib import Path

INTERVAL = 0.1  # seconds
PATHS = ("/ping", "/readiness", "/liveness")
LIMIT = 30.0


def waited(process: str) -> float:
    """Return how long the main thread of a process has waited for a processor, in seconds; 0 where nobody counts it."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def probe(host: str, port: int, process: str, path: str) -> tuple[float, float, int]:
    """Return the seconds that a probe took, those that are the server's own, and the status."""
    connection = http.client.HTTPConnection(host, port, timeout=LIMIT)
    before = waited(process) + waited("self")
    begun = time.perf_counter()
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    taken = time.perf_counter() - begun
    lost = waited(process) + waited("self") - before
    connection.close()
    return taken, max(0.0, taken - lost), response.status


def main() -> None:
    host, port, process = sys.argv[1:]
    place = 0
    while not select.select([sys.stdin], [], [], INTERVAL)[0]:
        taken, own, status = probe(host, int(port), process, PATHS[place % len(PATHS)])
        print(f"{taken * 1000:.2f} {own * 1000:.2f} {status} {PATHS[place % len(PATHS)]}", flush=True)
        place += 1


if __name__ == "__main__":
    main()
