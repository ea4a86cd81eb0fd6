"""Downloads of linked images, restricted to hosts that the operator allows and to public addresses."""

import asyncio
import socket
from errno import EACCES
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import aiohttp
from yarl import URL

from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import InvalidPayload

ANY_HOST = "*"
MOST_REDIRECTS = 3
NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: IPv4 addresses embedded in IPv6
HEADERS = {"Accept": "image/*", "Accept-Encoding": "identity"}  # a compressed body could expand to any size
NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # fetch_image has one for all redirects together
AddressInfo = tuple[Any, Any, int, str, Any]  # an item of what `socket.getaddrinfo` returns


async def fetch_image(url: str, place: str, options: RequestProperties) -> bytes:
    """Download an image. Raise InvalidPayload, naming `place`, where it is not allowed, fails, or is too large."""
    try:
        async with asyncio.timeout(options.image_fetch_timeout), _session() as session:
            return await _fetch(session, URL(url), place, options)
    except TimeoutError:
        seconds = options.image_fetch_timeout
        raise _unfetched(place, f"it took more than {seconds} seconds (option.image_fetch_timeout)") from None
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise _unfetched(place, str(error) or type(error).__name__) from None


def is_public(address: str) -> bool:
    """Return whether the address is a public one, no matter how it is embedded in IPv6."""
    try:
        parsed = ip_address(address)
    except ValueError:  # a short form such as "127.1", which only the system's resolver understands
        return False
    return all(each.is_global and not each.is_multicast and not each.is_reserved for each in _targets(parsed))


def _targets(address: IPv4Address | IPv6Address) -> list[IPv4Address | IPv6Address]:
    """Return the addresses that packets may reach: gateways can forward to an IPv4 address embedded in an IPv6 one."""
    if isinstance(address, IPv4Address):
        return [address]
    if address in NAT64:
        return [IPv4Address(int(address) & 0xFFFFFFFF)]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    return [address] if address.sixtofour is None else [address, address.sixtofour]


def _session() -> aiohttp.ClientSession:
    """Return a session that checks each address as it connects, since a name can resolve differently each time."""
    connector = aiohttp.TCPConnector(socket_factory=_public_socket, force_close=True)
    return aiohttp.ClientSession(connector=connector, headers=HEADERS, auto_decompress=False, timeout=NO_TIMEOUT)


def _public_socket(info: AddressInfo) -> socket.socket:
    family, kind, protocol, _, address = info
    if not is_public(address[0]):
        raise PermissionError(EACCES, "the host is not on the Internet")
    return socket.socket(family, kind, protocol)


async def _fetch(session: aiohttp.ClientSession, url: URL, place: str, options: RequestProperties) -> bytes:
    for _ in range(MOST_REDIRECTS + 1):
        _check_host(url, place, options.media_domains)
        async with session.get(url, allow_redirects=False) as response:
            target = response.headers.get("Location")
            if response.status // 100 != 3 or target is None:
                return await _body(response, place, options.max_image_size)
        url = url.join(URL(target))
    raise _unfetched(place, f"there are more than {MOST_REDIRECTS} redirects")


def _check_host(url: URL, place: str, allowed: frozenset[str]) -> None:
    if url.scheme not in ("http", "https") or url.raw_host is None:
        raise _unfetched(place, f"{url} is not an http or https URL")
    if url.raw_host.lower() not in allowed and ANY_HOST not in allowed:
        raise _unfetched(place, f"option.allowed_media_domains does not include {url.raw_host}")


async def _body(response: aiohttp.ClientResponse, place: str, most: int) -> bytes:
    if response.status != 200:
        raise _unfetched(place, f"the server answered with status {response.status}")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise too_large(place, most)
    return bytes(body)


def too_large(place: str, most: int) -> InvalidPayload:
    return InvalidPayload(f"`{place}` must be an image of at most {most} bytes (option.max_image_size)")


def _unfetched(place: str, reason: str) -> InvalidPayload:
    return InvalidPayload(f"`{place}` cannot be fetched: {reason}")
