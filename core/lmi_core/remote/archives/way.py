"""The way of one request through its redirects: what is on the Internet leads to nothing within a network.

Whoever can have a public server answer with a redirect could otherwise read what only this host reaches, such as
credentials at 169.254.169.254.
"""

import http.client
import socket
import urllib.request
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from lmi_core.configuration.location import without_secrets
from lmi_core.errors import ConfigurationError
from lmi_core.host.addresses import is_public


class Way:
    """What the connections of one request have led to, the first of which may be anywhere."""

    def __init__(self) -> None:
        self.was_public = False

    def check(self, url: str, addresses: list[str]) -> None:
        """Take the addresses of a further connection. Raise ConfigurationError where one of them is not for it."""
        private = next((address for address in addresses if not is_public(address)), None)
        if private is None:
            self.was_public = True
        elif self.was_public:
            raise ConfigurationError(
                f"the server leads to {without_secrets(url)}, at {private}, which is not on the Internet: give that "
                "URL itself if it is to be trusted"
            )

    def handlers(self) -> tuple[urllib.request.BaseHandler, ...]:
        """Return the handlers of urllib that connect on this way."""
        return _Http(self), _Https(self)

    def connection(self, request: urllib.request.Request, host: str, **arguments: Any) -> http.client.HTTPConnection:
        """Return a connection for a request, which is checked when it connects."""
        parts = urlsplit(request.full_url)
        if _has_proxy(request):  # which alone knows where a name leads
            self.check(request.full_url, _written_addresses(unquote(parts.hostname or "")))
            plain = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            return plain(host, **arguments)
        made = _TlsConnection(host, **arguments) if parts.scheme == "https" else _Connection(host, **arguments)
        made.way, made.url = self, request.full_url
        return made


class _Connection(http.client.HTTPConnection):
    """A connection whose addresses are checked before it connects, and that which it got before anything is sent."""

    way: Way
    url: str

    def connect(self) -> None:
        self.way.check(self.url, _addresses(self.host, self.port))
        super().connect()
        try:
            self.way.check(self.url, [self.sock.getpeername()[0]])  # the name may have been given another one
        except BaseException:
            self.close()
            raise


class _TlsConnection(http.client.HTTPSConnection, _Connection):
    """The same below TLS, which begins once the connection is checked."""


class _Http(urllib.request.HTTPHandler):
    def __init__(self, way: Way) -> None:
        super().__init__()
        self._way = way

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._way.connection, req), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, way: Way) -> None:
        super().__init__()
        self._way = way

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(self._way.connection, req), req)


def _has_proxy(request: urllib.request.Request) -> bool:
    """Return whether urllib has set a proxy. Hosts do not tell: one of `%31` is another as soon as it is read."""
    # `has_proxy` knows nothing of tunnels, which have no public name; a test goes through one.
    # https://github.com/python/cpython/blob/main/Lib/urllib/request.py
    return request.has_proxy() or getattr(request, "_tunnel_host", None) is not None


def _addresses(host: str, port: int) -> list[str]:
    """Return all addresses of a name. Raise OSError where it has none."""
    return [str(found[4][0]).partition("%")[0] for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _written_addresses(host: str) -> list[str]:
    """Return the address that is written out as a host, or that of this one; nothing for other names."""
    if host.lower().rstrip(".") == "localhost":
        return ["127.0.0.1"]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        return []
    return [str(each[4][0]).partition("%")[0] for each in found]
