"""Requests to web servers, with errors for people; no redirect leads from the Internet into a network.

Otherwise, anyone who can make a public server send a redirect could read data that only this host can reach, such as
credentials at 169.254.169.254.
"""

import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urldefrag, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from lmi_core.configuration.location import is_web, without_secrets
from lmi_core.errors import ConfigurationError
from lmi_core.host.addresses import AddressInfo, is_public, public_socket
from lmi_core.remote.errors import Unreachable

SECONDS = 30.0  # to connect, and to read the next byte
MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
PARTIAL = 206
NOT_SATISFIABLE = 416
TOO_MANY_REQUESTS = 429
SERVER_ERRORS = 500
REFUSALS = {
    401: "the server asks for a user and a password: give them as https://USER:PASSWORD@HOST/...",
    403: "the server refuses access: check the URL, whose signature may have expired",
    404: "the server has no such file: check the URL",
    407: "the proxy asks for a user and a password: give them in HTTPS_PROXY",
    410: "the server no longer has this file: check the URL",
}
BROKEN = (OSError, aiohttp.ClientError)
HEADERS = {"Accept-Encoding": "identity", "User-Agent": "lmi-handlers"}
UNWRITABLE = re.compile(r"[^\x21-\x7e]")  # characters not allowed in the URL of a request


class Validators(NamedTuple):
    """Headers that differ between two versions of a file."""

    etag: str
    modified: str
    size: int | None

    @property
    def strong(self) -> str | None:
        """The validator for If-Range requests; None if there is none."""
        return self.etag if self.etag.startswith('"') else self.modified or None


class Answer:
    """The answer to a request, whose body is read in pieces."""

    def __init__(self, session: aiohttp.ClientSession, response: aiohttp.ClientResponse) -> None:
        self._session = session
        self._response = response
        self.status = response.status
        self.validators = Validators(self.header("ETag"), self.header("Last-Modified"), self._size())

    def start(self) -> int:
        """Return the position in the file of the body's first byte; -1 if unknown."""
        if self.status != PARTIAL:
            return 0
        start = self.header("Content-Range").removeprefix("bytes ").partition("-")[0]
        return int(start) if start.isdecimal() else -1

    def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raise an error in BROKEN if that fails."""
        return self._response.content.iter_any()

    def header(self, name: str) -> str:
        return self._response.headers.get(name, "")

    async def close(self) -> None:
        self._response.close()
        await self._session.close()

    def _size(self) -> int | None:
        if self.status == PARTIAL:
            size = self.header("Content-Range").rpartition("/")[2]
        else:
            size = self.header("Content-Length")
        return int(size) if size.isdecimal() else None


class _Sockets:
    """The sockets of a request and of its redirects."""

    def __init__(self) -> None:
        self._was_public = False
        self.refused = ""  # the address that was refused

    def make(self, info: AddressInfo) -> socket.socket:
        """Make a socket. Raise PermissionError for a private address after a public one."""
        self.check(str(info[4][0]))
        return public_socket(info) if self._was_public else socket.socket(*info[:3])

    def check(self, address: str) -> None:
        """Raise PermissionError for a private address after a public one."""
        if is_public(address):
            self._was_public = True
        elif self._was_public:
            self.refused = address
            raise PermissionError(address)

    def check_through_proxy(self, host: str) -> None:
        """Check the host of a request through a proxy, if it is an address; names count as public."""
        if host.lower().rstrip(".") == "localhost":
            host = "127.0.0.1"
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except OSError:
            self._was_public = True
        else:
            for each in found:
                self.check(str(each[4][0]).partition("%")[0])


async def request(url: str, headers: Mapping[str, str]) -> Answer:
    """Return the answer, after redirects.

    Raise ConfigurationError, or Unreachable if a retry may succeed. A status of 416 is an answer too. Proxies are those
    of `HTTPS_PROXY` and `HTTP_PROXY`.
    """
    shown = without_secrets(url)
    try:
        parts = urlsplit(urldefrag(url).url)
        target = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        sockets, user = _Sockets(), _user(parts)
        for _ in range(MAX_REDIRECTS + 1):
            answer = await _get(target, headers, user, sockets)
            if answer.status // 100 == 2 or answer.status == NOT_SATISFIABLE:
                return answer
            await answer.close()
            if answer.status not in REDIRECTS:
                raise _refusal(answer.status)
            following = urlsplit(urljoin(target.geturl(), answer.header("Location").replace(" ", "%20")))
            _check_redirect(target, following)
            target, user = following, None
        raise ConfigurationError(f"more than {MAX_REDIRECTS} redirects, or a redirect loop")
    except ConfigurationError as error:
        raise type(error)(f"{shown}: {error.message}") from error
    except (*BROKEN, ValueError) as error:
        raise _explain(shown, error) from error


async def _get(
    target: SplitResult, headers: Mapping[str, str], user: aiohttp.BasicAuth | None, sockets: _Sockets
) -> Answer:
    """Return the answer to one request. The URL is sent as it is written: quoting it again would break signatures."""
    url, proxy = target.geturl(), _proxy(target)
    if UNWRITABLE.search(url):
        raise ValueError(url)
    try:
        if proxy is not None:
            sockets.check_through_proxy(unquote(target.hostname or ""))
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(socket_factory=None if proxy else sockets.make, force_close=True),
            headers=HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=SECONDS, sock_read=SECONDS),
        )
        try:
            response = await session.get(
                URL(url, encoded=True),
                headers=headers,
                auth=user,
                allow_redirects=False,
                proxy=proxy.with_user(None) if proxy else None,
                proxy_auth=_user(urlsplit(str(proxy))) if proxy else None,
            )
        except BaseException:
            await session.close()
            raise
        return Answer(session, response)
    except aiohttp.ClientHttpProxyError as error:
        raise _refusal(error.status) from None
    except OSError as error:
        if not sockets.refused:
            raise
        raise ConfigurationError(
            f"the server redirects to {without_secrets(url)}, at {sockets.refused}, which is not on the Internet: "
            "if you trust that URL, give it directly"
        ) from error


def _user(parts: SplitResult) -> aiohttp.BasicAuth | None:
    if parts.username is None:
        return None
    return aiohttp.BasicAuth(unquote(parts.username), unquote(parts.password or ""), "utf-8")


def _proxy(target: SplitResult) -> URL | None:
    """Return the environment's proxy for a URL, if any."""
    proxy = getproxies().get(target.scheme)
    if proxy is None or proxy_bypass(target.netloc):
        return None
    return URL(proxy if "://" in proxy else f"http://{proxy}")


def _check_redirect(target: SplitResult, following: SplitResult) -> None:
    """Raise ConfigurationError for a redirect to another protocol, or from HTTPS to HTTP."""
    if not is_web(following.geturl()):
        raise ConfigurationError(f"the server redirects to {following.scheme[:20]}://, which is not supported")
    if target.scheme == "https" and following.scheme == "http":
        raise ConfigurationError(
            f"the server redirects from https:// to {without_secrets(following.geturl())}, which others could "
            "change in transit: if you trust that URL, give it directly"
        )


def _refusal(status: int) -> ConfigurationError:
    if status >= SERVER_ERRORS or status == TOO_MANY_REQUESTS:
        return Unreachable(f"the server answered {status}")
    return ConfigurationError(f"{REFUSALS.get(status, 'check the URL')} (status {status})")


def _explain(shown: str, error: Exception) -> ConfigurationError:
    """Return an error of one sentence about the URL; Unreachable if a retry may succeed."""
    if isinstance(error, aiohttp.InvalidURL) or not isinstance(error, BROKEN):
        return ConfigurationError(
            f"{shown}: this URL, or one that the server redirects to, is not valid: check its host and port, and write "
            "blanks as %20"
        )
    cause: BaseException = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConfigurationError(
            f"{shown}: the server's certificate is not trusted ({cause.verify_message}): set SSL_CERT_FILE to the "
            "certificate of its authority"
        )
    if isinstance(cause, ssl.SSLError):
        return ConfigurationError(
            f"{shown}: the server does not use TLS ({cause.reason or cause}): check https:// and the port"
        )
    if isinstance(cause, socket.gaierror):
        return Unreachable(f"{shown}: the name of the host is unknown: check it, and this host's DNS")
    if isinstance(cause, TimeoutError):
        return Unreachable(f"{shown}: the server did not respond for {SECONDS:.0f} seconds")
    return Unreachable(f"{shown}: the server cannot be reached ({reason(cause)})")


def reason(error: BaseException) -> str:
    """Return why a connection failed, in the system's words if possible."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else str(error) or type(error).__name__
