"""Servers that start at the same moment with the same remote model and cache, one of which is killed meanwhile."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from lmi_core.remote import locks
from tests.archive_server import archive_server, files_below, hold_until
from tests.conftest import SCRIPTED
from tests.core.remote.archives.packing import zip_of
from tests.lmi_process import LmiProcess, lmi_serve
from tests.s3_server import Body, Environ, s3_server

WAITS = "is already being copied by another process: waiting for it"
Files = dict[str, bytes]


def version(text: str) -> Files:
    properties = f"{SCRIPTED}option.scripted_text={text}\n"
    return {"serving.properties": properties.encode(), "weights": os.urandom(3_000_000)}


@dataclass(frozen=True)
class Source:
    """A model elsewhere, whose download can be held in its middle."""

    put: Callable[[Files], str]
    hold: Callable[[threading.Event], threading.Event]  # until it is set; returns what is set once it has begun
    environment: dict[str, str]


@pytest.fixture
def web() -> Iterator[Source]:
    with archive_server() as server:

        def put(files: Files) -> str:
            data = zip_of(files)
            return server.put("mine.zip", data, f'"{hash(data)}"')

        def hold(released: threading.Event) -> threading.Event:
            begun = threading.Event()
            server.fault = hold_until(released, begun, 1_000_000)
            return begun

        yield Source(put, hold, {"NO_PROXY": "127.0.0.1"})


@pytest.fixture
def s3() -> Iterator[Source]:
    with s3_server() as server:

        def hold(released: threading.Event) -> threading.Event:
            begun = threading.Event()

            def fault(environ: Environ, body: Body) -> Iterator[bytes]:
                data = b"".join(body)
                yield data[: len(data) // 2]
                begun.set()
                released.wait(60)
                yield data[len(data) // 2 :]

            server.fault = fault
            return begun

        yield Source(lambda files: server.put("mine", files), hold, server.environment)


@dataclass(frozen=True)
class Cluster:
    """Servers of one source and one cache."""

    source: Source
    url: str
    cache: Path

    @asynccontextmanager
    async def server(self) -> AsyncIterator[LmiProcess]:
        environment = {**self.source.environment, "LMI_CACHE": str(self.cache)}
        async with lmi_serve(self.url, "--port", 0, environment=environment) as server:
            yield server

    @asynccontextmanager
    async def survivor(self) -> AsyncIterator[str]:
        """Start two servers, kill the one that downloads in the middle of it, and yield the other's URL."""
        released = threading.Event()
        begun = self.source.hold(released)
        async with self.server() as first, self.server() as second:
            waiting = {asyncio.create_task(each.line_with(WAITS)): each for each in (first, second)}
            (done, *_), pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            assert await asyncio.to_thread(begun.wait, 60)
            (downloads,) = [server for task, server in waiting.items() if task in pending]
            downloads.process.kill()
            await downloads.process.wait()
            released.set()
            yield await waiting[done].ready()

    def check_copies(self, *expected: Files) -> None:
        """Check that the cache has these versions, byte for byte, and no other."""
        copies = [files_below(path) for path in self.cache.glob("*/mine-*/*/mine")]
        assert len(copies) == len(expected)
        assert all(files in copies for files in expected)

    def check_locks(self) -> None:
        """Check that no lock is held and nothing unfinished is left."""
        (folder,) = self.cache.glob("*/mine-*")
        for path in [folder / "lock", *folder.glob("*.lock")]:
            with locks.try_exclusive(path) as free:
                assert free, path
        assert [path for path in folder.iterdir() if path.name == "partial" or path.suffix == ".new"] == []


async def text_of(url: str) -> str:
    async with aiohttp.ClientSession(url) as client, client.post("/invocations", json={"inputs": "hi"}) as response:
        assert response.status == 200, await response.text()
        return str((await response.json())["generated_text"])


@pytest.mark.parametrize("kind", ["web", "s3"])
async def test_one_of_two_is_killed_while_it_downloads(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source: Source = request.getfixturevalue(kind)
    old, new, newest = version("old"), version("new"), version("newest")
    cluster = Cluster(source, source.put(old), tmp_path / "cache")
    async with cluster.survivor() as before, cluster.server() as restarted:
        assert [await text_of(before), await text_of(await restarted.ready())] == ["old", "old"]
        cluster.check_copies(old)
        source.put(new)
        async with cluster.survivor() as after:
            assert [await text_of(before), await text_of(after)] == ["old", "new"]
            cluster.check_copies(old, new)  # the old one is in use
    source.put(newest)
    async with cluster.server() as last:
        assert await text_of(await last.ready()) == "newest"
    cluster.check_copies(newest)
    cluster.check_locks()
