"""The operator's rules for pages of other web sites (CORS)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lmi_core.configuration.host_patterns import ANY, DEFAULT_PORTS, Host

ANY_PORT = f":{ANY}"
FORM = "an origin is SCHEME://HOST[:PORT], such as https://app.example.com, https://*.example.com or http://localhost:*"
# The methods of routes for clients, and the syntax of tokens in HTTP.
METHODS = ("GET", "HEAD", "POST", "DELETE")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Origin(NamedTuple):
    """The scheme, host and port of a page, or a pattern of several."""

    scheme: str
    host: Host
    has_any_port: bool = False

    @classmethod
    def parse(cls, text: str) -> "Origin":
        """Parse an origin as sent by browsers. Raise ValueError for any other form, including `null`."""
        scheme, separator, host = text.lower().partition("://")
        if not separator or _SCHEME.fullmatch(scheme) is None or ANY in host:
            raise ValueError(FORM)
        return cls(scheme, _with_port(Host.parse(host), scheme))

    @classmethod
    def parse_pattern(cls, text: str) -> "Origin":
        """Parse an origin whose host may be `*.NAME`, and whose port `*`. Raise ValueError for any other form."""
        scheme, separator, host = text.lower().removesuffix("/").partition("://")
        if not separator or _SCHEME.fullmatch(scheme) is None or host.removesuffix(ANY_PORT) == ANY:
            raise ValueError(FORM)
        pattern = Host.parse_pattern(host.removesuffix(ANY_PORT))
        has_any_port = host.endswith(ANY_PORT)
        return cls(scheme, pattern if has_any_port else _with_port(pattern, scheme), has_any_port)

    def covers(self, origin: "Origin") -> bool:
        """Return whether an origin is this one, or matches the pattern."""
        if self.scheme != origin.scheme or not (self.has_any_port or self.host.port == origin.host.port):
            return False
        return self.host.covers(origin.host)


@dataclass(frozen=True, slots=True)
class CrossOrigin:
    """The pages of other web sites that may use client routes, and how."""

    origins: Sequence[Origin] | None  # None: every web site
    methods: Sequence[str] = METHODS
    headers: Sequence[str] | None = None  # in lower case; None: all
    allow_credentials: bool = False  # cookies and certificates, which only a proxy in front of the server may require

    def __post_init__(self) -> None:
        if self.allow_credentials and self.origins is None:
            raise ValueError("credentials cannot be allowed for every web site: list the origins")

    def admits(self, origin: str) -> bool:
        """Return whether pages of an origin, as the browser names it, may use the server."""
        if self.origins is None:
            return True
        try:
            parsed = Origin.parse(origin)
        except ValueError:
            return False
        return any(each.covers(parsed) for each in self.origins)

    def refused_headers(self, asked: Sequence[str]) -> list[str]:
        """Return the requested headers that a page may not send."""
        if self.headers is None:
            return []
        return [name for name in asked if name.lower() not in self.headers]


def is_token(text: str) -> bool:
    """Return whether a text can be the name of a method or of a header."""
    return _TOKEN.fullmatch(text) is not None


def _with_port(host: Host, scheme: str) -> Host:
    """Return the host, with its scheme's default port if it has none."""
    return host if host.port is not None else host._replace(port=DEFAULT_PORTS.get(scheme))
