"""The limits of the server's connections, in number and time."""

import resource
from dataclasses import dataclass, replace

# For everything except clients' connections: model files, engines, downloads, refused clients
RESERVED_DESCRIPTORS = 256


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The maximum number of connections, and the maximum seconds of each phase."""

    max_connections: int = 10_000
    header_timeout: float = 30
    body_timeout: float = 30
    write_timeout: float = 60
    keep_alive_timeout: float = 75
    min_transfer_rate: int = 1024  # bytes per second of bodies and answers, over a body_timeout or write_timeout
    max_pending_body_bytes: int = 512 * 1024 * 1024  # of long bodies that have not fully arrived

    @property
    def sweep_interval(self) -> float:
        """The seconds between two checks of the connections."""
        shortest = min(self.header_timeout, self.body_timeout, self.write_timeout, self.keep_alive_timeout)
        return min(1, shortest / 4)

    @property
    def affordable_connections(self) -> int:
        """The number of connections that `max_connections` and this process's descriptors allow."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return self.max_connections
        return max(1, min(self.max_connections, soft - RESERVED_DESCRIPTORS))

    def split(self, divisor: int) -> "tuple[ConnectionLimits, ConnectionLimits]":
        """Return the limits of two listeners: one gets the affordable connections divided by `divisor`, the other the
        rest.
        """
        affordable = self.affordable_connections
        share = max(1, affordable // divisor)
        return replace(self, max_connections=share), replace(self, max_connections=max(1, affordable - share))


DEFAULT_LIMITS = ConnectionLimits()


def raise_descriptor_limit(connections: int) -> str | None:
    """Raise the descriptor limit to the needs of the connections; return a warning if that fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed == wanted:
        return None
    return (
        f"max_connections={connections} needs {wanted} descriptors, and this process may open {hard}: at most "
        f"{max(1, hard - RESERVED_DESCRIPTORS)} connections are served at a time. Raise the limit (ulimit -n, "
        "LimitNOFILE=), or lower max_connections"
    )
