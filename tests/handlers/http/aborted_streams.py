"""Streams that are left at any point, and what a server in this process must not keep of them."""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import psutil

from tests.conftest import RunningServer
from tests.handlers.http.connections.raw_client import LIMIT, post, raw_client

PACKAGES = ("lmi_", "aiohttp", "asyncio")
AT_ONCE = 20
QUIET_LOOKS = 20
MAX_LOOKS = 10
MANY_TIMERS = 1000  # more than a server ever has
FEW = 30  # objects of a type that caches may have more than before

Leave = Callable[[RunningServer, str, bytes], Awaitable[None]]


async def leave_at_once(server: RunningServer, path: str, body: bytes) -> None:
    """Leave before the server has read the request."""
    async with raw_client(server) as client:
        await client.send(post(path, body))


async def leave_half_sent(server: RunningServer, path: str, body: bytes) -> None:
    async with raw_client(server) as client:
        await client.send(post(path, body[:-3], length=len(body)))


async def leave_after_the_head(server: RunningServer, path: str, body: bytes) -> None:
    """Leave once the stream has begun."""
    async with raw_client(server) as client:
        await client.send(post(path, body))
        await client.reader.readuntil(b"\r\n\r\n")


async def leave_within(server: RunningServer, path: str, body: bytes) -> None:
    """Leave once some of the text was read."""
    async with raw_client(server) as client:
        await client.send(post(path, body))
        for _ in range(4):
            await client.reader.readuntil(b"\n")


async def half_close(server: RunningServer, path: str, body: bytes) -> None:
    """End the own side, as a proxy does whose client has left, and read on until the server ends the stream."""
    async with raw_client(server) as client:
        await client.send(post(path, body))
        await client.reader.readuntil(b"\r\n\r\n")
        client.writer.write_eof()
        await client.rest()


WAYS: tuple[Leave, ...] = (leave_at_once, leave_half_sent, leave_after_the_head, leave_within, half_close)


async def leave_streams(server: RunningServer, streams: list[tuple[str, bytes]], count: int, seed: int) -> None:
    """Begin that many streams and leave them, some at once, and wait until the server is idle."""
    numbers, turns = random.Random(seed), asyncio.Semaphore(AT_ONCE)

    async def one(leave: Leave, path: str, body: bytes) -> None:
        async with turns:
            await leave(server, path, body)

    asked = [(numbers.choice(WAYS), *numbers.choice(streams)) for _ in range(count)]
    await asyncio.gather(*(one(*each) for each in asked))
    await until_idle(server)


async def until_idle(server: RunningServer) -> None:
    """Wait until no request is in progress, and none is about to begin."""
    quiet = 0
    async with asyncio.timeout(LIMIT):
        while quiet < QUIET_LOOKS:
            await asyncio.sleep(0.01)
            quiet = 0 if server.dispatcher.in_flight else quiet + 1


class Held(NamedTuple):
    """What this process holds."""

    tasks: Counter[str]
    descriptors: int
    objects: Counter[str]

    def more_than(self, before: "Held") -> dict[str, Any]:
        """Return what there is more of than before."""
        more: dict[str, Any] = {name: count for name, count in self.tasks.items() if count > before.tasks[name]}
        if self.descriptors > before.descriptors:
            more["descriptors"] = (before.descriptors, self.descriptors)
        objects = {name: count for name, count in self.objects.items() if count > before.objects[name] + FEW}
        return more | objects


async def measure() -> Held:
    """Return what is held once connections that were closed are forgotten, which is looked at once a second."""
    await asyncio.sleep(1.5)
    # asyncio drops cancelled timers, which hold their contexts, only when they are a hundred and more than half of all.
    for _ in range(MANY_TIMERS):
        asyncio.get_running_loop().call_later(MANY_TIMERS, gc.collect).cancel()
    await asyncio.sleep(0.1)
    gc.collect()
    tasks = Counter(getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks())
    types = Counter(map(type, gc.get_objects()))
    objects = Counter(
        {f"{kind.__module__}.{kind.__qualname__}": count for kind, count in types.items() if _counts(kind)}
    )
    # A chat template that takes long on a busy machine is rendered in another process, which stays with two sockets.
    own = psutil.Process().num_fds() - 2 * len(psutil.Process().children(recursive=True))
    return Held(tasks, own, objects)


async def growth_since(before: Held) -> dict[str, Any]:
    """Return what there is more of than before and stays, as a busy machine may need some time to drop it."""
    for _ in range(MAX_LOOKS):
        if not (more := (await measure()).more_than(before)):
            break
    return more


def _counts(kind: type) -> bool:
    named = kind.__name__ in ("async_generator", "coroutine", "generator", "Future", "Task", "Timeout")
    return named or str(kind.__module__).startswith(PACKAGES)
