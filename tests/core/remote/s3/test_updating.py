"""Copies of what lies in S3, made from moto's server over a socket."""

import asyncio
import contextlib
import os
import socket
import threading
from pathlib import Path

import pytest

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote import locks
from lmi_core.remote.fetching import cached_directory, fetch, local_directory
from lmi_core.remote.s3.download import PART_SIZE, UNFINISHED
from tests.core.remote.fetching_process import FetchingProcess
from tests.s3_server import Body, Environ, S3Server, range_start

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "sub/folder/notes.txt": b"", "model.py": b"x = 1"}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def versions(cache: Path) -> list[str]:
    """The copies in the cache of one model."""
    (location,) = (cache / "s3").iterdir()
    return [path.name for path in location.iterdir() if path.is_dir()]


async def error_of(source: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        await fetch(RemoteModel(source))
    return raised.value.message


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.mark.parametrize("url", ["s3://models/whole", "s3://models/whole/", "s3://models/whole/*"])
async def test_everything_below_the_folder(s3: S3Server, url: str) -> None:
    s3.put("whole", FILES)
    s3.put("whole-not", FILES)
    s3.client.put_object(Bucket="models", Key="whole/empty/", Body=b"")  # as the console makes folders
    folder = await fetch(RemoteModel(url))
    assert folder.name == "whole"
    assert contents(folder) == FILES


async def test_keys_that_begin_so(s3: S3Server) -> None:
    s3.put("starts", {"a1": b"1", "a2/x": b"2", "b": b"3"})
    assert contents(await fetch(RemoteModel("s3://models/starts/a*"))) == {"a1": b"1", "a2/x": b"2"}


async def test_other_formats_are_left_out_of_weights_alone(s3: S3Server) -> None:
    url = s3.put("formats", {**FILES, "pytorch_model.bin": b"again"})
    assert contents(await fetch(RemoteModel(url))) == FILES
    assert "pytorch_model.bin" in contents(await fetch(RemoteModel(url, everything=True)))


async def test_large_object_comes_in_parts(s3: S3Server) -> None:
    data = os.urandom(2 * PART_SIZE + 1)
    folder = await fetch(RemoteModel(s3.put("large", {"model.safetensors": data})))
    assert (folder / "model.safetensors").read_bytes() == data
    assert sorted(range_.partition(" ")[2] for range_ in s3.gets) == [
        f"bytes=0-{PART_SIZE - 1}",
        f"bytes={2 * PART_SIZE}-",
        f"bytes={PART_SIZE}-{2 * PART_SIZE - 1}",
    ]


async def test_unchanged_copy_is_not_downloaded_again(s3: S3Server) -> None:
    url = s3.put("again", FILES)
    first = await fetch(RemoteModel(url))
    s3.gets.clear()
    assert await fetch(RemoteModel(url)) == first
    assert s3.gets == []


async def test_only_what_changed_is_downloaded(s3: S3Server, cache: Path) -> None:
    url = s3.put("changing", FILES)
    async with FetchingProcess(url) as serving:
        first = await serving.folder()
        s3.put("changing", {"config.json": b"{1}"})
        s3.client.delete_object(Bucket="models", Key="changing/model.py")
        s3.gets.clear()
        async with FetchingProcess(url) as other:
            second = await other.folder()
            assert contents(first) == FILES  # it is still served
            changed = {name: data for name, data in FILES.items() if name != "model.py"} | {"config.json": b"{1}"}
            assert contents(second) == changed
            assert s3.gets == ["/models/changing/config.json bytes=0-"]
            assert len(versions(cache)) == 2
    s3.put("changing", {"config.json": b"{2}"})
    async with FetchingProcess(url) as last:
        third = await last.folder()
        assert versions(cache) == [third.parent.name]  # nobody serves the others any more


async def test_damaged_copy_is_made_again(s3: S3Server) -> None:
    url = s3.put("damaged", FILES)
    folder = await fetch(RemoteModel(url))
    (folder / "model.safetensors").write_bytes(b"half")
    assert contents(await fetch(RemoteModel(url))) == FILES


async def test_broken_connections_are_retried(s3: S3Server) -> None:
    data = os.urandom(3 * 1024 * 1024)
    url = s3.put("breaking", {"model.safetensors": data})
    broken = 1000

    def break_first(environ: Environ, body: Body) -> Body:
        whole = b"".join(body)
        return [whole] if len(s3.gets) > broken else broken_after(whole[: 1024 * 1024])

    s3.fault = break_first
    message = await error_of(url)
    assert message.startswith(f"{url}: the connection to S3 was interrupted (")
    assert message.endswith("): start again to resume")
    s3.gets.clear()
    broken = 2
    assert (await fetch(RemoteModel(url)) / "model.safetensors").read_bytes() == data
    assert len(s3.gets) == 3


def broken_after(data: bytes) -> Body:
    yield data
    raise ConnectionResetError


@pytest.mark.parametrize("ended", ["killed", "cancelled"])
async def test_interrupted_download_continues_with_the_files_that_are_missing(
    s3: S3Server, cache: Path, ended: str
) -> None:
    files = {"config.json": b"{}", "model-1.safetensors": os.urandom(3 * PART_SIZE), "model-2.safetensors": b"2"}
    url = s3.put(ended, files)
    released = threading.Event()

    def hold_the_end_back(environ: Environ, body: Body) -> Body:
        if range_start(environ) >= 2 * PART_SIZE:
            released.wait(60)
        return body

    s3.fault = hold_the_end_back
    if ended == "killed":
        async with FetchingProcess(url) as process:
            await wait_for_downloads(cache, 2)
            await process.kill()
        await asyncio.to_thread(wait_for_lock, cache)  # the process that downloads ends with the one that waits for it
    else:
        task = asyncio.create_task(fetch(RemoteModel(url)))
        await wait_for_downloads(cache, 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    with pytest.raises(ConfigurationError, match="is not downloaded yet"):
        cached_directory(url)
    assert versions(cache) == ["partial"]
    s3.reset()
    released.set()
    assert contents(await fetch(RemoteModel(url))) == files
    assert {get.partition(" ")[0] for get in s3.gets} == {f"/models/{ended}/model-1.safetensors"}
    assert len(set(s3.gets)) == 3  # one may have been read twice: the killed process had asked for it too


def wait_for_lock(cache: Path) -> None:
    with locks.exclusive(next(cache.rglob("lock")), lambda: None):
        pass


async def wait_for_downloads(cache: Path, count: int) -> None:
    """Wait until so many files are downloaded, and another one is being so."""
    async with asyncio.timeout(60):
        while sum(not path.suffix for path in cache.rglob("partial/*")) < count or not unfinished(cache):
            await asyncio.sleep(0.01)


def unfinished(cache: Path) -> list[Path]:
    return list(cache.rglob(f"partial/*{UNFINISHED}*"))


async def test_killed_before_it_was_named_current(s3: S3Server, cache: Path) -> None:
    url = s3.put("unnamed", FILES)
    await fetch(RemoteModel(url))
    (current,) = cache.rglob("current.json")
    current.unlink()
    s3.gets.clear()
    assert contents(await fetch(RemoteModel(url))) == FILES
    assert s3.gets == []
    assert current.exists()


async def test_killed_while_files_were_put_in_place(s3: S3Server, cache: Path) -> None:
    url = s3.put("staged", FILES)
    folder = await fetch(RemoteModel(url))
    next(cache.rglob("current.json")).unlink()
    staging = folder.parent.with_name(f"{folder.parent.name}.new")
    folder.parent.rename(staging)
    (staging / "staged" / "config.json").unlink()
    s3.gets.clear()
    assert contents(await fetch(RemoteModel(url))) == FILES
    assert s3.gets == ["/models/staged/config.json bytes=0-"]


async def test_two_at_once_download_it_once(s3: S3Server) -> None:
    url = s3.put("shared", FILES)
    released = threading.Event()

    def hold(environ: Environ, body: Body) -> Body:
        released.wait(30)
        return body

    s3.fault = hold
    async with FetchingProcess(url) as first, FetchingProcess(url) as second:
        waiting = [
            asyncio.create_task(each.logged("is already being copied by another process: waiting for it"))
            for each in (first, second)
        ]
        done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        released.set()
        for task in pending:
            task.cancel()
        await asyncio.gather(*done)
        assert contents(await first.folder()) == contents(await second.folder()) == FILES
    assert len(s3.gets) == len(FILES) - 1  # one is empty


async def test_object_that_changes_while_it_is_downloaded(s3: S3Server) -> None:
    url = s3.put("moving", FILES)
    changed = threading.Event()

    def change_once(body: Body) -> Body:
        whole = b"".join(body)
        if b"<ListBucketResult" in whole and not changed.is_set():
            changed.set()
            s3.put("moving", {"model.safetensors": b"newer weights"})
        return [whole]

    s3.listed = change_once
    assert contents(await fetch(RemoteModel(url))) == {**FILES, "model.safetensors": b"newer weights"}


async def test_unreachable_with_a_copy(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = s3.put("before", FILES)
    folder = await fetch(RemoteModel(url))
    monkeypatch.setenv("AWS_ENDPOINT_URL", closed_port())
    assert await fetch(RemoteModel(url)) == folder
    assert "S3 cannot be reached" in caplog.text
    assert "The copy made earlier is served, which may be out of date" in caplog.text


async def test_unreachable_without_a_copy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    address = closed_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    async with asyncio.timeout(60):
        message = await error_of("s3://models/nowhere/")
    assert message == (
        f's3://models/nowhere/: S3 cannot be reached (Could not connect to the endpoint URL: "{address}/models"):'
        " check the network, the region and AWS_ENDPOINT_URL"
    )


def closed_port() -> str:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_key_that_leaves_the_folder(s3: S3Server, cache: Path) -> None:
    s3.put("evil", {"config.json": b"{}", "../../escaped": b"!"})
    message = "s3://models/evil/: the key 'evil/../../escaped' is not a valid file path within the folder: "
    assert (await error_of("s3://models/evil/")).startswith(message)
    assert contents(cache) == {next(iter(contents(cache))): b""}  # its lock


async def test_more_than_the_disk_holds(s3: S3Server) -> None:
    url = s3.put("huge", {"model.safetensors": b"?"})

    def petabytes(body: Body) -> Body:
        whole = b"".join(body)
        claimed = whole.replace(b"<Size>1</Size>", b"<Size>5000000000000000</Size>")
        claimed = claimed.replace(b"<StorageClass>STANDARD</StorageClass>", b"")
        return [claimed.ljust(len(whole))]

    s3.listed = petabytes
    message = await error_of(url)
    assert message.startswith(f"{url}: the download needs 5 PB, but the disk of ")
    assert message.endswith(" free: free some space, or set LMI_CACHE to a folder on another disk")


async def test_cache_that_cannot_be_written(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SERVING_DOWNLOAD_DIR", str(tmp_path / "file"))
    message = await error_of(s3.put("unwritable", FILES))
    assert message.startswith("s3://models/unwritable/ cannot be written to ")
    assert message.endswith("Not a directory: set SERVING_DOWNLOAD_DIR to another folder")


def test_directories(s3: S3Server, tmp_path: Path) -> None:
    assert local_directory(str(tmp_path)) == cached_directory(str(tmp_path)) == tmp_path
    url = s3.put("directory", {**FILES, "pytorch_model.bin": b"also"})
    folder = local_directory(url)
    assert cached_directory(url) == folder
    assert contents(folder) == {**FILES, "pytorch_model.bin": b"also"}


async def test_download_directory_of_djl_serving(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    url = s3.put("elsewhere", FILES)
    monkeypatch.setenv("SERVING_DOWNLOAD_DIR", str(tmp_path / "downloads"))
    assert (await fetch(RemoteModel(url))).is_relative_to(tmp_path / "downloads")
    monkeypatch.setenv("SERVING_DOWNLOAD_DIR", "default")
    assert (await fetch(RemoteModel(url))).is_relative_to(cache)
