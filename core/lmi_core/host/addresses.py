"""Addresses on the Internet, and those within a network or a host."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

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
