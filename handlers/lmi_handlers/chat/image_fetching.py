"""Downloads of linked images, from allowed hosts and, by default, from public addresses only."""

import asyncio

import aiohttp
from yarl import URL

from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import InvalidPayload
from lmi_core.host.addresses import public_socket
from lmi_handlers.chat.name_lookup import NameResolver

ANY_HOST = "*"
MAX_REDIRECTS = 3
HEADERS = {"Accept": "image/*", "Accept-Encoding": "identity"}  # a compressed body could expand to any size
NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # fetch_image has one time limit for all redirects


async def fetch_image(url: str, place: str, options: RequestProperties) -> bytes:
    """Download an image. Raise InvalidPayload, naming `place`, if it is not allowed, fails, or is too large."""
    try:
        async with asyncio.timeout(options.image_fetch_timeout):
            return await _fetch(URL(url), place, options)
    except TimeoutError:
        seconds = options.image_fetch_timeout
        raise _fetch_error(place, f"it took more than {seconds} seconds (option.image_fetch_timeout)") from None
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise _fetch_error(place, str(error) or type(error).__name__) from None


def _session(url: URL, private: frozenset[str]) -> aiohttp.ClientSession:
    """Return a session for a URL, which refuses private addresses unless the host is one of `private`."""
    is_private = url.raw_host is not None and url.raw_host.lower() in private
    factory = None if is_private else public_socket
    connector = aiohttp.TCPConnector(resolver=NameResolver(), socket_factory=factory, force_close=True)
    return aiohttp.ClientSession(connector=connector, headers=HEADERS, auto_decompress=False, timeout=NO_TIMEOUT)


async def _fetch(url: URL, place: str, options: RequestProperties) -> bytes:
    for _ in range(MAX_REDIRECTS + 1):
        if url.scheme not in ("http", "https") or url.raw_host is None:
            raise _fetch_error(place, f"{url} is not an http or https URL")
        if url.raw_host.lower() not in options.media_domains and ANY_HOST not in options.media_domains:
            raise _fetch_error(place, f"option.allowed_media_domains does not include {url.raw_host}")
        async with (
            _session(url, options.private_media_domains) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            target = response.headers.get("Location")
            if response.status // 100 != 3 or target is None:
                return await _body(response, place, options.max_image_size)
        url = url.join(URL(target))
    raise _fetch_error(place, f"there are more than {MAX_REDIRECTS} redirects")


async def _body(response: aiohttp.ClientResponse, place: str, most: int) -> bytes:
    if response.status != 200:
        raise _fetch_error(place, f"the server answered with status {response.status}")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise too_large(place, most)
    return bytes(body)


def too_large(place: str, most: int) -> InvalidPayload:
    return InvalidPayload(f"`{place}` must be an image of at most {most} bytes (option.max_image_size)")


def _fetch_error(place: str, reason: str) -> InvalidPayload:
    return InvalidPayload(f"`{place}` cannot be fetched: {reason}")
