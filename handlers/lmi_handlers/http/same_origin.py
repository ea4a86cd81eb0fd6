"""What keeps pages of other web sites from changing the server through the browser of somebody who can reach it.

A browser sends a page's POST to any address, this host's own ones too, without asking the server first. But it tells
whose page that is (`Origin`, `Sec-Fetch-Site`) and by which name it found the server (`Host`), and no page can change
these. What is no browser need not send the first two. A content type proves nothing: a page that names everything in
the query needs no body, and `curl -d` sends the type that a form has.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from aiohttp import web

from lmi_core.errors import Forbidden
from lmi_core.payloads.payload import shown
from lmi_core.serving.hosts import ANY, Host, canonical_name, is_loopback

DEFAULT_PORTS = {"http": 80, "https": 443}
FOREIGN_PAGE = "this route is not for pages of other web sites"
ALLOWED_HOSTS = "allowed_hosts in serving.properties names further hosts that are this server, such as a proxy"
SERVER_HOST = web.AppKey("server_host", str)  # what the server was told to listen on


def refuse_foreign_pages(request: web.Request, allowed: Collection[Host]) -> None:
    """Raise Forbidden where a header tells of another site's page, or of a name that is not this server's.

    `allowed` are patterns of the names that the server has besides those that it knows of itself.
    """
    own = OwnHosts(_known_hosts(request), allowed)
    headers = request.headers
    named = headers.getall("Host", ())  # HTTP/1.0 needs none, and browsers always send it
    if own.known is not None:
        _refuse_foreign_hosts(named, own)
    hosts = {_host(given) for given in named}
    for given in headers.getall("Origin", ()):
        origin = _origin_host(given)
        if origin is None or not (origin in hosts or own.include(origin)):
            raise Forbidden(
                f"{FOREIGN_PAGE}: `Origin` must be this server's own. Given: {shown(given)}. {ALLOWED_HOSTS}"
            )
    for given in headers.getall("Sec-Fetch-Site", ()):
        if given.lower() == "cross-site":
            raise Forbidden(f"{FOREIGN_PAGE}: the browser says `Sec-Fetch-Site: {given}`")


class OwnHosts(NamedTuple):
    """The hosts that this server is; `known` is None for a Unix socket, which no name leads to."""

    known: tuple[Host, ...] | None
    allowed: Collection[Host]

    def include(self, host: Host) -> bool:
        """Return whether the host is the server, where a pattern for any name does not count."""
        is_known = any(
            host.port == each.port and (host.name == each.name or is_loopback(host.name)) for each in self.known or ()
        )
        return is_known or any(pattern.covers(host) for pattern in self.allowed if pattern.name != ANY)

    @property
    def take_any(self) -> bool:
        return any(pattern.name == ANY for pattern in self.allowed)

    def __str__(self) -> str:
        return ", ".join(f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name, port in self.known or ())


def _known_hosts(request: web.Request) -> tuple[Host, ...] | None:
    """Return the address that the request came in on, and the one that the server was told to listen on."""
    address = request.get_extra_info("sockname")
    if address is None:
        raise Forbidden("the client has left")  # and with it the address to compare with
    if isinstance(address, str | bytes):
        return None
    names = dict.fromkeys(map(canonical_name, (address[0], request.app.get(SERVER_HOST, address[0]))))
    return tuple(Host(name, address[1]) for name in names)


def _refuse_foreign_hosts(named: Iterable[str], own: OwnHosts) -> None:
    for given in named:
        host = _host(given)
        if host is None or not (own.take_any or own.include(host)):
            bound = f"`Host` must be this server's on this route: {own} or localhost"
            raise Forbidden(f"{bound}. Given: {shown(given)}. {ALLOWED_HOSTS}")


def _host(given: str, scheme: str = "http") -> Host | None:
    """Return the host with the port that is meant where none is written; None for what is no host."""
    try:
        name, port = Host.parse(given)
    except ValueError:
        return None
    return Host(name, DEFAULT_PORTS[scheme] if port is None else port)


def _origin_host(given: str) -> Host | None:
    """Return an origin's host; None also for `null`, which hides whose page it is, and for what is no web site's."""
    scheme, separator, host = given.lower().partition("://")
    return _host(host, scheme) if separator and scheme in DEFAULT_PORTS else None
