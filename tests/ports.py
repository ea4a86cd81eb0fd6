"""Ports for programs that must be told one."""

import random
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST = 10_000


def free_port() -> int:
    """Return a free port of this host, if possible one that no connection gets by itself before the program has it."""
    try:
        end = int(RANGE.read_text().split()[0])
    except OSError:
        end = 0
    while end > FIRST:
        port = random.SystemRandom().randrange(FIRST, end)
        if _is_free(port):
            return port
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
