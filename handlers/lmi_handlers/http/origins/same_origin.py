"""Protection against cross-site requests, sent by a foreign page through the browser of someone with access.

A browser sends a page's POST to any address, even of a local server, without asking the server first. But its headers
contain the page's site (`Origin`, `Sec-Fetch-Site`) and the name used for the server (`Host`), which no page can
change. Other clients may omit the first two. The content type proves nothing: a page can put everything into the query
without a body, and `curl -d` declares a form.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from aiohttp import web

from lmi_core.configuration.host_patterns import ANY, DEFAULT_PORTS, Host, canonical_name, is_loopback
from lmi_core.errors import Forbidden
from lmi_core.payloads.payload import quote

FOREIGN_PAGE = "this route does not accept requests from pages of other web sites"
ALLOWED_HOSTS = "add other names of this server, such as a proxy's, to allowed_hosts in serving.properties"
SERVER_HOST = web.AppKey("server_host", str)  # the configured address to listen on


def refuse_foreign_pages(request: web.Request, allowed: Collection[Host], *, proven: bool = False) -> None:
    """Raise Forbidden if a header shows another site's page, or a host name that is not this server's.

    `allowed` contains patterns of further host names, from allowed_hosts. `proven` allows any host name: the request
    has a credential, which a page that points a name to this server's address cannot know.
    """
    own = OwnHosts(_known_hosts(request), allowed)
    headers = request.headers
    named = headers.getall("Host", ())  # optional in HTTP/1.0, but browsers always send it
    if own.known is not None and not proven:
        _refuse_foreign_hosts(named, own, request.scheme)
    hosts = {_host(given, request.scheme) for given in named}
    for given in headers.getall("Origin", ()):
        # `null`, which hides the site, and other schemes than HTTP have no host.
        scheme, separator, host = given.lower().partition("://")
        origin = _host(host, scheme) if separator and scheme in DEFAULT_PORTS else None
        if origin is None or not (origin in hosts or own.include(origin)):
            raise Forbidden(
                f"{FOREIGN_PAGE}: `Origin` must be this server's own. Given: {quote(given)}. {ALLOWED_HOSTS}"
            )
    for given in headers.getall("Sec-Fetch-Site", ()):
        if given.lower() == "cross-site":
            raise Forbidden(f"{FOREIGN_PAGE}: the browser sent `Sec-Fetch-Site: {given}`")


class OwnHosts(NamedTuple):
    """The host names of this server; `known` is None on a Unix socket, which has no name."""

    known: tuple[Host, ...] | None
    allowed: Collection[Host]

    def include(self, host: Host) -> bool:
        """Return whether the host is this server, by its addresses or a pattern other than `*`."""
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
    """Return the address that received the request, and the configured one; None on a Unix socket."""
    address = request.get_extra_info("sockname")
    if address is None:
        raise Forbidden("the client has disconnected")  # a closed connection has no address to compare with
    if isinstance(address, str | bytes):
        return None
    names = dict.fromkeys(map(canonical_name, (address[0], request.app.get(SERVER_HOST, address[0]))))
    return tuple(Host(name, address[1]) for name in names)


def _refuse_foreign_hosts(named: Iterable[str], own: OwnHosts, scheme: str) -> None:
    for given in named:
        host = _host(given, scheme)
        if host is None or not (own.take_any or own.include(host)):
            bound = f"`Host` must be this server's on this route: {own} or localhost"
            raise Forbidden(f"{bound}. Given: {quote(given)}. {ALLOWED_HOSTS}")


def _host(given: str, scheme: str) -> Host | None:
    """Return the parsed host, with the scheme's default port if it has none; None if it is not a host."""
    try:
        name, port = Host.parse(given)
    except ValueError:
        return None
    return Host(name, DEFAULT_PORTS[scheme] if port is None else port)
