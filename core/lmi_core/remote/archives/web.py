"""Requests to web servers, with errors for people."""

import base64
import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, NamedTuple, cast
from urllib.parse import unquote, urldefrag, urlsplit

from lmi_core.configuration.location import is_web, without_secrets
from lmi_core.errors import ConfigurationError
from lmi_core.remote.archives.way import Way
from lmi_core.remote.errors import Unreachable

SECONDS = 30.0  # without a byte, to connect and to read
MAX_REDIRECTS = 5
PARTIAL = 206
NOT_SATISFIABLE = 416
TOO_MANY_REQUESTS = 429
SERVER_ERRORS = 500
REFUSALS = {
    401: "the server asks for a user and a password: give them as https://USER:PASSWORD@HOST/...",
    403: "the server refuses access: check the URL, whose signature may have expired",
    404: "the server has no such file: check the URL",
    407: "the proxy asks for a user and a password: give them in HTTPS_PROXY",
    410: "the server has no such file any more: check the URL",
}
BROKEN = (OSError, http.client.HTTPException)


class Validators(NamedTuple):
    """What tells one version of a file from another one."""

    etag: str
    modified: str
    size: int | None

    @property
    def strong(self) -> str | None:
        """The value by which a server knows the rest of the same bytes, None where there is none."""
        return self.etag if self.etag.startswith('"') else self.modified or None


class Answer:
    """The answer to a request, whose body is read in pieces."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.validators = Validators(
            response.headers.get("ETag", ""), response.headers.get("Last-Modified", ""), self._size()
        )

    def start(self) -> int:
        """Return the position of the first byte of the body in the file, -1 where that is unknown."""
        if self.status != PARTIAL:
            return 0
        start = self.headers("Content-Range").removeprefix("bytes ").partition("-")[0]
        return int(start) if start.isdecimal() else -1

    def read(self, size: int) -> bytes:
        """Return the bytes that are there, at most `size`; none at the end. Raise one of BROKEN."""
        return self._response.read1(size)

    def headers(self, name: str) -> str:
        return self._response.headers.get(name, "")

    def close(self) -> None:
        self._response.close()

    def _size(self) -> int | None:
        if self.status == PARTIAL:
            size = self.headers("Content-Range").rpartition("/")[2]
        else:
            size = self.headers("Content-Length")
        return int(size) if size.isdecimal() else None


def request(url: str, headers: Mapping[str, str]) -> Answer:
    """Return the answer, after redirects. Raise ConfigurationError, or Unreachable where another try may succeed.

    A status of 416 is an answer, too. No redirect leads from the Internet to an address within a network.
    Proxies are those of `HTTPS_PROXY` and `HTTP_PROXY`.
    """
    parts = urlsplit(urldefrag(url).url)
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    with explained(url):
        asked = urllib.request.Request(address, headers={"Accept-Encoding": "identity", **headers})
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            asked.add_unredirected_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
        try:
            return Answer(_opener().open(asked, timeout=SECONDS))
        except urllib.error.HTTPError as error:
            if error.code == NOT_SATISFIABLE:
                return Answer(cast("http.client.HTTPResponse", error))
            raise


def _opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.build_opener(_Redirects, *Way().handlers())
    opener.addheaders = [("User-Agent", "lmi-handlers")]
    return opener


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects, a few of them, and none that gives up TLS."""

    max_redirections = MAX_REDIRECTS

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not is_web(newurl):
            raise ConfigurationError(f"the server leads to {urlsplit(newurl).scheme}://, which is not supported")
        if urlsplit(req.full_url).scheme == "https" and urlsplit(newurl).scheme == "http":
            raise ConfigurationError(
                f"the server leads from https:// to {without_secrets(newurl)}, which anybody on the way could change: "
                "give that URL itself if it is to be trusted"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn errors of the network into a ConfigurationError of one sentence about the URL, or into Unreachable."""
    shown = without_secrets(url)
    try:
        yield
    except ConfigurationError as error:
        raise type(error)(f"{shown}: {error.message}") from error
    except urllib.error.HTTPError as error:
        error.close()
        if error.code >= SERVER_ERRORS or error.code == TOO_MANY_REQUESTS:
            raise Unreachable(f"{shown}: the server answered {error.code}") from None
        if error.code < http.client.BAD_REQUEST:
            raise ConfigurationError(f"{shown}: {_why_not_followed(error)}") from None
        refusal = REFUSALS.get(error.code, "check the URL")
        raise ConfigurationError(f"{shown}: {refusal} (status {error.code})") from None
    except urllib.error.URLError as error:
        raise _unreachable(shown, error.reason if isinstance(error.reason, OSError) else error) from error
    except (ValueError, http.client.InvalidURL) as error:  # which have the whole URL in their words
        raise ConfigurationError(
            f"{shown}: this URL, or one that the server leads to, is not valid: check its host and port, and write "
            "blanks as %20"
        ) from error
    except BROKEN as error:
        raise _unreachable(shown, error) from error


def _why_not_followed(error: urllib.error.HTTPError) -> str:
    scheme, colon, _ = error.headers.get("Location", "").partition("://")
    if colon and not is_web(f"{scheme}://"):
        return f"the server leads to {scheme[:20]}://, which is not supported"
    return f"there are more than {MAX_REDIRECTS} redirects, or a circle"


def _unreachable(shown: str, error: Exception) -> ConfigurationError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigurationError(
            f"{shown}: the server's certificate is not trusted ({error.verify_message}): set SSL_CERT_FILE to the "
            "certificate of its authority"
        )
    if isinstance(error, ssl.SSLError):
        return ConfigurationError(f"{shown}: there is no TLS ({error.reason or error}): check https:// and the port")
    if isinstance(error, socket.gaierror):
        return Unreachable(f"{shown}: the name of the host is unknown: check it, and this host's DNS")
    if isinstance(error, TimeoutError):
        return Unreachable(f"{shown}: the server gave no answer for {SECONDS:.0f} seconds")
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return Unreachable(f"{shown}: the server cannot be reached ({reason})")
