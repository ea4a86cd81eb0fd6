"""Lookups of host names from clients; nothing can interrupt the system's resolver, which may take half a minute.

The event loop has only four threads for lookups, so four unanswered names would block all others.
"""

import asyncio
import socket
from concurrent.futures import Future
from threading import Thread

from aiohttp.abc import AbstractResolver, ResolveResult

from lmi_core.host.addresses import AddressInfo

MAX_LOOKUPS = 256  # concurrent lookups, each in its own thread
MAX_OF_DOMAIN = 8  # concurrent lookups per domain, because its name servers may not respond

Found = list[AddressInfo] | OSError
_lookups: dict[tuple[str, int], Future[Found]] = {}


class NameResolver(AbstractResolver):
    """A resolver for aiohttp; cancelling leaves a lookup to its thread."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        key = (host, int(family))
        while key not in _lookups and (others := _in_the_way(host)):
            await asyncio.wait(map(asyncio.wrap_future, others), return_when=asyncio.FIRST_COMPLETED)
        found = await asyncio.wrap_future(_lookups.get(key) or _start(key))
        if isinstance(found, OSError):
            raise found
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(hostname=host, host=address[0], port=port, family=family, proto=protocol, flags=flags)
            for family, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        pass


def _in_the_way(host: str) -> list[Future[Found]]:
    """Return the lookups, one of which must end before a lookup of the host may start."""
    running = list(_lookups.items())
    if len(running) < MAX_LOOKUPS:
        running = [(key, future) for key, future in running if _domain(key[0]) == _domain(host)]
        if len(running) < MAX_OF_DOMAIN:
            return []
    return [future for _, future in running]


def _domain(host: str) -> list[str]:
    return host.lower().rstrip(".").split(".")[-2:]


def _start(key: tuple[str, int]) -> Future[Found]:
    future: Future[Found] = Future()
    future.set_running_or_notify_cancel()  # cancelling one waiter does not cancel the others
    _lookups[key] = future
    Thread(target=_look_up, args=(key, future), name="name-lookup", daemon=True).start()
    return future


def _look_up(key: tuple[str, int], future: Future[Found]) -> None:
    host, family = key
    found: Found
    try:
        found = socket.getaddrinfo(host, None, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except OSError as error:
        found = error
    except UnicodeError as error:  # an empty or overlong label
        found = socket.gaierror(socket.EAI_NONAME, str(error))
    del _lookups[key]
    future.set_result(found)
