"""Downloads to disks that are full, or become so: refused in a sentence, and done once there is room."""

import asyncio
import os
import resource
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote.fetching import fetch
from tests.archive_server import ArchiveServer, archive_server, files_below, hold_until
from tests.core.remote.archives.packing import zip_of
from tests.core.remote.fake_hub import fake_hub
from tests.s3_server import Body, Environ, S3Server
from tests.small_disk import SmallDisk, small_disk

MB = 1_000_000
SIZE = 2 * MB
WEIGHTS = os.urandom(MB)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    """A small disk with the cache, and with the hub's."""
    with small_disk(tmp_path / "disk", SIZE) as disk:
        monkeypatch.setenv("LMI_CACHE", str(disk.folder / "cache"))
        monkeypatch.setenv("HF_HOME", str(disk.folder / "hf"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.delenv("SERVING_DOWNLOAD_DIR", raising=False)
        yield disk


@pytest.fixture
def web() -> Iterator[ArchiveServer]:
    with archive_server() as server:
        yield server


async def error_of(source: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        await fetch(RemoteModel(source))
    return raised.value.message


async def error_when_filled(
    source: str, disk: SmallDisk, begun: Callable[[], Awaitable[object]], go: threading.Event
) -> str:
    """Return the error of a download whose disk becomes full once it has begun."""
    fetching = asyncio.create_task(error_of(source))
    await begun()
    filling = disk.fill()
    go.set()
    message = await fetching
    filling.unlink()
    return message


async def test_archive_that_unpacks_to_more_than_the_disk(disk: SmallDisk, web: ArchiveServer) -> None:
    url = web.put("mine.zip", zip_of({"zeros": bytes(5 * MB)}))
    assert await error_of(url) == (
        f"{url}: the disk of {disk.folder}/cache is full: free some space, or set LMI_CACHE to a folder on another disk"
    )
    assert disk.used < MB / 10
    disk.resize(20 * MB)
    assert (await fetch(RemoteModel(url)) / "zeros").stat().st_size == 5 * MB


async def test_files_that_may_not_grow(web: ArchiveServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    url = web.put("mine.zip", zip_of({"zeros": bytes(5 * MB)}))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MB, hard))  # the download process inherits it
    try:
        message = await error_of(url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert message == f"{url} cannot be written to {tmp_path}/cache: File too large: set LMI_CACHE to another folder"
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.stat().st_size]
    assert (await fetch(RemoteModel(url)) / "zeros").stat().st_size == 5 * MB


async def test_archive_that_is_larger_than_the_disk(disk: SmallDisk, web: ArchiveServer) -> None:
    files = {"weights": WEIGHTS * 3}
    url = web.put("mine.zip", zip_of(files))
    message = await error_of(url)
    assert message.startswith(f"{url}: the download needs 3 MB, but the disk of {disk.folder}/cache/archives/mine-")
    assert disk.used < MB / 10
    disk.resize(20 * MB)
    assert files_below(await fetch(RemoteModel(url))) == files


async def test_disk_that_fills_up_while_an_archive_comes(disk: SmallDisk, web: ArchiveServer) -> None:
    files = {"weights": WEIGHTS}
    url = web.put("mine.zip", zip_of(files))
    released, begun = threading.Event(), threading.Event()
    web.fault = hold_until(released, begun, 1000)

    async def written() -> None:
        async with asyncio.timeout(60):
            while not [path for path in disk.folder.rglob("archive") if path.stat().st_size]:
                await asyncio.sleep(0.02)

    message = await error_when_filled(url, disk, written, released)
    assert f"{url}: the disk of {disk.folder}/cache is full: free some space" in message
    web.fault = None
    disk.resize(20 * MB)
    assert files_below(await fetch(RemoteModel(url))) == files


async def test_disk_that_fills_up_while_s3_sends(
    disk: SmallDisk, s3_of_module: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_of_module.environment.items():
        monkeypatch.setenv(name, value)
    files = {"config.json": b"{}", "model.safetensors": WEIGHTS}
    url = s3_of_module.put("full", files)
    released, begun = threading.Event(), threading.Event()

    def hold(environ: Environ, body: Body) -> Body:
        begun.set()
        released.wait(60)
        return body

    s3_of_module.fault = hold
    message = await error_when_filled(url, disk, lambda: asyncio.to_thread(begun.wait, 60), released)
    s3_of_module.reset()
    assert message == (
        f"{url}: the disk of {disk.folder}/cache is full: free some space, or set LMI_CACHE to a folder on another disk"
    )
    assert files_below(await fetch(RemoteModel(url))) == files
    larger = s3_of_module.put("larger", {"model.safetensors": WEIGHTS * 3})
    assert f"{larger}: the download needs 3 MB, but the disk of " in await error_of(larger)


async def test_disk_that_fills_up_while_the_hub_sends(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    files = {"config.json": b"{}", "model.safetensors": WEIGHTS}
    with fake_hub(files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.hold.clear()

        async def begun() -> None:
            async with asyncio.timeout(60):
                while not hub.holding:
                    await asyncio.sleep(0.02)

        message = await error_when_filled("org/tiny", disk, begun, hub.hold)
        assert message == (
            f"org/tiny: the disk of {disk.folder}/cache is full: free some space, or set HF_HOME to a folder on "
            "another disk"
        )
        assert files_below(await fetch(RemoteModel("org/tiny"))) == files
