"""Names whose lookup does not end, beside others."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lmi_handlers.chat.name_lookup import MAX_OF_DOMAIN, NameResolver

GOOD = "127.0.0.1"


class Lookups:
    """The system's resolver, in which names below `hang.example` wait."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked: list[str] = []

    def getaddrinfo(self, host: str, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(host)
        if host.endswith("hang.example"):
            self.release.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        if host == "unknown.example":
            raise UnicodeError("label too long")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (GOOD, 0))]


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lookups]:
    lookups = Lookups()
    monkeypatch.setattr(socket, "getaddrinfo", lookups.getaddrinfo)
    yield lookups
    lookups.release.set()


async def test_names_without_an_answer_stop_no_others(lookups: Lookups) -> None:
    resolver = NameResolver()
    names = [f"{number}.hang.example" for number in range(3 * MAX_OF_DOMAIN)] + ["0.hang.example"]
    hanging = [asyncio.create_task(resolver.resolve(name)) for name in names]
    (found,) = await resolver.resolve("good.org", 80)
    assert (found["host"], found["port"], found["hostname"]) == (GOOD, 80, "good.org")
    assert len(lookups.asked) <= MAX_OF_DOMAIN + 1
    hanging[0].cancel()  # its lookup goes on, for the last of them
    lookups.release.set()
    ends = await asyncio.gather(*hanging, return_exceptions=True)
    assert isinstance(ends[0], asyncio.CancelledError)
    assert all(isinstance(end, socket.gaierror) for end in ends[1:])
    assert sorted(lookups.asked) == sorted({*names, "good.org"})


async def test_name_that_no_host_can_have(lookups: Lookups) -> None:
    with pytest.raises(socket.gaierror, match="label too long"):
        await NameResolver().resolve("unknown.example")
