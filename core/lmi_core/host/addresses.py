"""Addresses on the Internet, and those within a network or a host."""

import socket
from errno import EACCES
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

AddressInfo = tuple[Any, Any, int, str, Any]  # an item of the list that `socket.getaddrinfo` returns
NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: IPv4 addresses embedded in IPv6


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


def public_socket(info: AddressInfo) -> socket.socket:
    """Create a socket to connect to a resolved address. Raise PermissionError for a private address.

    As aiohttp's `socket_factory`, it checks each address before connecting, because a name can resolve differently each
    time.
    """
    family, kind, protocol, _, address = info
    if not is_public(address[0]):
        raise PermissionError(EACCES, "the host is not on the Internet")
    return socket.socket(family, kind, protocol)
