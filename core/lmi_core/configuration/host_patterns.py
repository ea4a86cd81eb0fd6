"""Host names, as in `Host`, `Origin` and the option allowed_hosts."""

import re
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

ANY = "*"  # the pattern of every host
DEFAULT_PORTS = {"http": 80, "https": 443}
ANY_BELOW = "*."  # before a name: every host below it

_HOST = re.compile(r"(\[[^\[\]\s]+\]|[^:\[\]/?#@\\\s,]+)(?::(\d{1,5}))?")
_PATTERN = re.compile(r"\*|(?:\*\.)?[^*]+")


class Host(NamedTuple):
    """A host name in lower case or an IP address in its canonical form, with an optional port."""

    name: str
    port: int | None

    @classmethod
    def parse(cls, text: str) -> "Host":
        """Parse `name`, `name:port` or `[address]:port`. Raise ValueError for any other form."""
        match = _HOST.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a host")
        return cls(canonical_name(match[1].strip("[]")), int(match[2]) if match[2] else None)

    @classmethod
    def parse_pattern(cls, text: str) -> "Host":
        """Parse a host, `*.name` for every host below a name, or `*` for all. Raise ValueError for any other form."""
        if _PATTERN.fullmatch(text) is None:
            raise ValueError(f"{text!r} is not a host")
        return cls.parse(text)

    def covers(self, host: "Host") -> bool:
        """Return whether the pattern matches a host; without a port it matches every port."""
        if self.port not in (None, host.port):
            return False
        if self.name.startswith(ANY_BELOW):
            return host.name.endswith(self.name.removeprefix(ANY))
        return self.name in (ANY, host.name)


def canonical_name(name: str) -> str:
    """Return a name's canonical form: lower case, without final dot or zone, and with mapped IPv4 addresses as IPv4."""
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
