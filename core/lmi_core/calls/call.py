"""What a client sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request, read whole. Header names are matched without regard to case."""

    path_parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    request_id: str
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""  # the IP address that it came from
