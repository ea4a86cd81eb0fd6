"""Copies of the server's folders in the cache of another host, which is a child process that does not see them."""

import asyncio
import logging
import os
import resource
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.logs.loading_progress import LoadingProgress, unheard
from lmi_core.remote.nodes.messages import CHUNK, Chunk, Next, decode_from_node, decode_to_node
from lmi_core.remote.nodes.sending import RECEIVING, NodeFiles
from lmi_core.workers.conversation import WorkerDied
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.messages import encode
from tests.core.remote.nodes.hiding import environment_hiding

WEIGHTS = bytes(range(256)) * (CHUNK * 6 // 256) + b"end"
ADAPTER = "adapter_model.safetensors"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    for path, content in {
        "m/model.safetensors": WEIGHTS,
        "m/config.json": b"{}",
        "m/empty": b"",
        "m/1_Pooling/config.json": b"[]",
        "m/pytorch_model.bin": b"the same weights",
        "m/.git/objects": b"the same weights",
        f"m/adapters/a/{ADAPTER}": b"an adapter",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@pytest.fixture
def cache(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in environment_hiding(models, tmp_path / "node").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "node" / "cache"


class Watched:
    """A worker's transport that lets a test see the files that it asks for, and change chunks on their way."""

    def __init__(self, process: LocalProcess) -> None:
        self.process = process
        self.asked: list[str] = []
        self.on_ask: Callable[[str], None] = lambda _: None
        self.changed: Callable[[Chunk], Chunk] = lambda chunk: chunk

    def send(self, message: bytes) -> None:
        decoded = decode_to_node(message)
        self.process.send(encode(self.changed(decoded)) if isinstance(decoded, Chunk) else message)

    async def receive(self) -> bytes:
        message = await self.process.receive()
        match decode_from_node(message):
            case Next(path):
                self.asked.append(path)
                self.on_ask(path)
        return message

    def kill_at(self, path: str) -> None:
        self.on_ask = lambda asked: self.process.kill() if asked == path else None


@asynccontextmanager
async def worker() -> AsyncIterator[tuple[NodeFiles, Watched]]:
    process = LocalProcess(RECEIVING)
    await process.start()
    try:
        watched = Watched(process)
        yield NodeFiles("10.0.0.2", watched), watched
    finally:
        process.kill()
        await process.stop()


async def bring(folder: Path) -> tuple[Path, set[str]]:
    """Return the copy for a worker that ends at once, and the files that it asked for."""
    async with worker() as (files, watched):
        return await files.bring(folder, unheard), set(watched.asked)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_it_comes_once_with_what_engines_read(
    models: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    progress = LoadingProgress()
    async with worker() as (first, _), worker() as (second, _):
        copies = await asyncio.gather(*(each.bring(models / "m", progress.report) for each in (first, second)))
        adapter = await first.bring(models / "m/adapters/a", unheard)
    assert len(set(copies)) == 1
    assert copies[0].is_relative_to(cache)
    assert contents(copies[0]) == {
        "model.safetensors": WEIGHTS,
        "config.json": b"{}",
        "empty": b"",
        "1_Pooling/config.json": b"[]",
    }
    assert contents(adapter) == {ADAPTER: b"an adapter"}
    assert (progress.what, progress.share) == (f"copying {models}/m for node 10.0.0.2", 1.0)
    logged = [each for each in caplog.messages if f" {models}/m for node 10.0.0.2" in each]
    assert [each.partition(" ")[0] for each in logged] == ["copying", "copied"]
    assert logged[0].endswith(f"{copies[0]}: 6.29 MB; skipped: 16 B in files that are not needed")


async def test_a_folder_that_the_node_has_is_used_as_it_is(models: Path, tmp_path: Path) -> None:
    assert await bring(models / "m") == (models / "m", set())


async def test_a_copy_that_was_cut_off_goes_on_with_the_next_file(models: Path, cache: Path) -> None:
    async with worker() as (files, watched):
        watched.kill_at("model.safetensors")
        with pytest.raises(WorkerDied):
            await files.bring(models / "m", unheard)
    copy, asked = await bring(models / "m")
    assert asked == {"model.safetensors"}
    assert contents(copy)["model.safetensors"] == WEIGHTS


async def test_a_new_version_takes_only_new_files_and_the_old_one_goes_once_it_is_unused(
    models: Path, cache: Path
) -> None:
    async with worker() as (files, _):
        old = await files.bring(models / "m", unheard)
        (models / "m/config.json").write_bytes(b"{} ")
        new, asked = await bring(models / "m")
        assert asked == {"config.json"}
        assert (contents(old)["config.json"], contents(new)["config.json"]) == (b"{}", b"{} ")
    (models / "m/config.json").write_bytes(b"{}  ")
    there = list[bool]()

    def look(_: str) -> None:
        there.append(old.exists())

    async with worker() as (files, watched):
        watched.on_ask = look
        newest = await files.bring(models / "m", unheard)
    assert there == [False]  # it makes room for the new files
    assert [path.exists() for path in (old, new, newest)] == [False, False, True]


async def test_a_hub_snapshot_is_known_by_its_contents(models: Path, cache: Path) -> None:
    blob, snapshot = models / "hub/blobs/0123abcd", models / "hub/snapshots/main"
    for folder in (blob.parent, snapshot):
        folder.mkdir(parents=True)
    blob.write_bytes(b"{}")
    (snapshot / "config.json").symlink_to("../../blobs/0123abcd")
    first, asked = await bring(snapshot)
    assert (contents(first), asked) == ({"config.json": b"{}"}, {"config.json"})
    os.utime(blob, (0, 0))
    assert await bring(snapshot) == (first, set())


async def test_copies_of_folders_that_are_gone_are_removed(models: Path, cache: Path) -> None:
    shutil.copytree(models / "m", models / "n")
    gone, _ = await bring(models / "m/adapters/a")
    async with worker() as (files, _):
        used = await files.bring(models / "n", unheard)
        shutil.rmtree(models / "m/adapters/a")
        shutil.rmtree(models / "n")
        await bring(models / "m")
        assert (gone.exists(), used.exists()) == (False, True)
    await bring(models / "m")
    assert not used.exists()
    assert sorted(path.name for path in used.parents[1].iterdir()) == ["lock"]


async def test_a_worker_keeps_only_the_newest_version(models: Path, cache: Path) -> None:
    versions = list[Path]()
    async with worker() as (files, _):
        for length in range(3):
            (models / "m/config.json").write_bytes(b"{}" + b" " * length)
            versions.append(await files.bring(models / "m", unheard))
    assert [path.exists() for path in versions] == [False, True, True]


async def test_servers_on_other_hosts_leave_each_others_copies(
    models: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = [await bring(models / name) for name in ("m", "m/adapters/a")]
    monkeypatch.setattr("socket.gethostname", lambda: "another")
    shutil.rmtree(models / "m/adapters/a")
    (models / "m/config.json").write_bytes(b"{} ")
    copies.append(await bring(models / "m"))
    assert [path.exists() for path, _ in copies] == [True, True, True]


async def test_links_are_followed_and_only_adapters_left_out(models: Path, cache: Path) -> None:
    folder = models / "linked"
    (folder / "notes").mkdir(parents=True)
    (folder / "notes/adapter_notes.txt").write_bytes(b"no adapter")
    (folder / "tokenizer").symlink_to("../m/1_Pooling")
    (folder / "adapters").symlink_to("../m/adapters")
    (folder / "loop").symlink_to(folder)
    copy, _ = await bring(folder)
    assert contents(copy) == {"notes/adapter_notes.txt": b"no adapter", "tokenizer/config.json": b"[]"}


async def test_a_name_that_is_not_text_is_refused(models: Path, cache: Path) -> None:
    strange = models / "m" / os.fsdecode(b"caf\xe9")
    strange.touch()
    async with worker() as (files, _):
        with pytest.raises(ConfigurationError, match=r"m cannot be copied: caf\\udce9 is not valid UTF-8"):
            await files.bring(models / "m", unheard)
        strange.unlink()
        assert (await files.bring(models / "m", unheard)).is_dir()


async def test_damage_on_the_way_is_found(models: Path, cache: Path) -> None:
    async with worker() as (files, watched):
        watched.changed = lambda chunk: Chunk(chunk.data[::-1], chunk.digest)
        with pytest.raises(
            ConfigurationError, match=r"^node 10.0.0.2: .*config.json arrived damaged: its SHA-256 differs"
        ):
            await files.bring(models / "m", unheard)
        watched.changed = lambda chunk: chunk
        assert contents(await files.bring(models / "m", unheard))["model.safetensors"] == WEIGHTS


@pytest.mark.parametrize("content", [b"short", WEIGHTS + b"longer"])
async def test_a_file_that_changes_meanwhile_is_refused(models: Path, cache: Path, content: bytes) -> None:
    weights = models / "m/model.safetensors"
    async with worker() as (files, watched):
        watched.on_ask = lambda path: void(weights.write_bytes(content)) if path == weights.name else None
        with pytest.raises(ConfigurationError, match=r"m/model.safetensors changed while it was copied"):
            await files.bring(models / "m", unheard)
        watched.on_ask = lambda path: None
        assert contents(await files.bring(models / "m", unheard))["model.safetensors"] == content


async def test_a_file_that_is_gone_meanwhile_is_named(models: Path, cache: Path) -> None:
    weights = models / "m/model.safetensors"
    async with worker() as (files, watched):
        watched.on_ask = lambda path: weights.unlink(missing_ok=True) if path == weights.name else None
        with pytest.raises(ConfigurationError, match=r"m/model.safetensors cannot be read: No such file or directory"):
            await files.bring(models / "m", unheard)


async def test_a_cache_that_cannot_be_written(models: Path, cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(ConfigurationError, match=r"m cannot be written to .*: set LMI_CACHE to another folder"):
        await bring(models / "m")


async def test_a_disk_that_fails_in_the_middle(models: Path, cache: Path) -> None:
    async with worker() as (files, watched):
        assert watched.process.process_id is not None
        resource.prlimit(watched.process.process_id, resource.RLIMIT_FSIZE, (CHUNK, resource.RLIM_INFINITY))
        with pytest.raises(ConfigurationError, match=r"m cannot be written to .*: File too large: set LMI_CACHE"):
            await files.bring(models / "m", unheard)
        assert contents(await files.bring(models / "m/adapters/a", unheard)) == {ADAPTER: b"an adapter"}


async def test_a_copy_goes_on_when_its_caller_leaves(models: Path, cache: Path) -> None:
    async with worker() as (files, watched):
        asked = asyncio.Event()
        watched.on_ask = lambda _: asked.set()
        leaving = asyncio.create_task(files.bring(models / "m", unheard))
        await asked.wait()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert contents(await files.bring(models / "m", unheard))["model.safetensors"] == WEIGHTS


def void(_: object) -> None:
    """Return nothing, as callbacks do."""
