"""The limits of requests whose model is not known yet: the widest limits of all models."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from lmi_core.configuration.host_patterns import Host
from lmi_core.configuration.properties import ServerProperties


class Limits(NamedTuple):
    """The maximum body size, the maximum number of JSON members, and all patterns of host names."""

    max_request_size: int
    max_request_members: int
    allowed_hosts: frozenset[Host]

    @classmethod
    def of(cls, servers: Sequence[ServerProperties]) -> Self:
        """Return the widest limits of these options; the defaults without options."""
        servers = servers or [ServerProperties()]
        return cls(
            max(server.max_request_size for server in servers),
            max(server.max_request_members for server in servers),
            frozenset().union(*(server.host_patterns for server in servers)),
        )
