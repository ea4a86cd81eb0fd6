"""Names of hosts as `Host`, `Origin` and the option allowed_hosts have them."""

import re
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

ANY = "*"  # as a pattern: every host
ANY_BELOW = "*."  # in front of a name: every host below it

_HOST = re.compile(r"(\[[^\[\]\s]+\]|[^:\[\]/?#@\\\s,]+)(?::(\d{1,5}))?")
_PATTERN = re.compile(r"\*|(?:\*\.)?[^*]+")


class Host(NamedTuple):
    """A name in lower case or an IP address in its one short form, and the port where there is one."""

    name: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> "Host":
        """Read `name`, `name:port` or `[address]:port`. Raises ValueError."""
        match = _HOST.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no host")
        return cls(canonical_name(match[1].strip("[]")), int(match[2]) if match[2] else None)

    @classmethod
    def parse_pattern(cls, text: str) -> "Host":
        """Read a host, in which `*.` may stand for every name below, or `*` alone. Raises ValueError."""
        if _PATTERN.fullmatch(text) is None:
            raise ValueError(f"{text!r} is no host")
        return cls.parse(text)

    def covers(self, host: "Host") -> bool:
        """Return whether the pattern covers a host, with every port where it names none."""
        if self.port not in (None, host.port):
            return False
        if self.name.startswith(ANY_BELOW):
            return host.name.endswith(self.name.removeprefix(ANY))
        return self.name in (ANY, host.name)


def canonical_name(name: str) -> str:
    """Return the one form of all names of a host: no case, no final dot, no zone, IPv4 as such."""
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return name.lower().removesuffix(".")
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def is_loopback(name: str) -> bool:
    """Return whether a name or an IP address means the host itself."""
    canonical = canonical_name(name)
    try:
        return ip_address(canonical).is_loopback
    except ValueError:
        return canonical == "localhost"
