"""Copies of archives, made by the download process of what a web server sends."""

import asyncio
import hashlib
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote.copies import Copies
from lmi_core.remote.fetching import cached_directory, fetch, local_directory
from tests.archive_server import ArchiveServer, cut_off_at, files_below, hold_until
from tests.core.remote.archives.packing import tar_of, zip_of
from tests.core.remote.fetching_process import FetchingProcess

FILES = {"config.json": b"{}", "sub/model.py": b"x = 1\n", "model.safetensors": os.urandom(3_000_000)}


async def error_of(url: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        await fetch(RemoteModel(url))
    return raised.value.message


def copies(cache: Path) -> list[str]:
    """Return the folders in the cache of the only archive: the copies, and what is left of others."""
    (location,) = (cache / "archives").iterdir()
    return [path.name for path in location.iterdir() if path.is_dir()]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


async def test_archive_is_downloaded_once(web: ArchiveServer, cache: Path) -> None:
    url = web.put("models/mine.zip", zip_of(FILES))
    folder = await fetch(RemoteModel(url))
    assert folder.name == "mine"
    assert files_below(folder) == FILES
    assert await fetch(RemoteModel(url)) == folder
    assert len(copies(cache)) == 1
    assert not (folder.parents[1] / "partial").exists()


async def test_single_folder_is_the_model(web: ArchiveServer) -> None:
    url = web.put("mine.tar.gz", tar_of({f"top/{name}": content for name, content in FILES.items()}))
    assert files_below(await fetch(RemoteModel(url))) == FILES


async def test_changed_archive_is_unpacked_anew(web: ArchiveServer, cache: Path) -> None:
    url = web.put("mine.zip", zip_of({"a": b"1"}))
    async with FetchingProcess(url) as before:
        old = await before.folder()
        web.put("mine.zip", zip_of({"a": b"2"}), '"2"')
        async with FetchingProcess(url) as after:
            assert files_below(await after.folder()) == {"a": b"2"}
            assert files_below(old) == {"a": b"1"}  # held by the first process
    web.put("mine.zip", zip_of({"a": b"3"}), '"3"')
    assert files_below(await fetch(RemoteModel(url))) == {"a": b"3"}
    assert len(copies(cache)) == 1


async def test_file_without_validators_is_known_by_its_content(web: ArchiveServer) -> None:
    url = web.put("mine.zip", zip_of({"a": b"1"}), None)
    folder = await fetch(RemoteModel(url))
    assert await fetch(RemoteModel(url)) == folder
    assert not (folder.parents[1] / "partial").exists()
    web.put("mine.zip", zip_of({"a": b"2"}), None)  # of the same size
    assert files_below(await fetch(RemoteModel(url))) == {"a": b"2"}


async def test_broken_connection_is_resumed(web: ArchiveServer) -> None:
    url = web.put("mine.zip", zip_of(FILES))
    web.fault = cut_off_at(1_000_000, 500_000)
    assert files_below(await fetch(RemoteModel(url))) == FILES
    first, second = (int(headers["Range"].removeprefix("bytes=").rstrip("-")) for _, headers in web.requests[1:])
    assert 0 < first <= 1_000_000  # the last bytes before the break can be lost
    assert first < second <= first + 500_000


@pytest.mark.parametrize("how", ["no ranges", "changed", "no validators"])
async def test_download_begins_anew_where_it_cannot_be_resumed(web: ArchiveServer, how: str) -> None:
    url = web.put("mine.zip", zip_of(FILES), None if how == "no validators" else '"1"')
    cut = cut_off_at(1_000_000)

    def fault(request: object, data: bytes) -> bool:
        whole = cut(request, data)  # type: ignore[arg-type]
        if how == "changed" and not whole:
            web.put("mine.zip", zip_of({"a": b"2" * 100_000}), '"2"')
        return whole

    web.ranges, web.fault = how != "no ranges", fault
    expected = {"a": b"2" * 100_000} if how == "changed" else FILES
    assert files_below(await fetch(RemoteModel(url))) == expected


async def test_nothing_is_resumed_by_a_weak_validator(web: ArchiveServer) -> None:
    """Two files with the same weak validator may differ in their bytes."""
    url = web.put("mine.zip", zip_of(FILES), 'W/"1"')
    web.fault = cut_off_at(1_000_000)
    assert files_below(await fetch(RemoteModel(url))) == FILES
    assert ["Range" in headers for _, headers in web.requests] == [False, False]


async def test_rest_of_another_file_is_not_taken_for_that_of_the_first(web: ArchiveServer) -> None:
    first, second = (tar_of({"weights": each * 3_000_000}, compressed=False) for each in (b"1", b"2"))
    url, cut = web.put("mine.tar", first), cut_off_at(1_000_000)

    def fault(request: BaseHTTPRequestHandler, data: bytes) -> bool:
        whole = cut(request, data)
        if not whole:
            web.put("mine.tar", second, '"2"')
        return whole

    web.heeds_if_range, web.fault = False, fault
    assert files_below(await fetch(RemoteModel(url))) == {"weights": b"2" * 3_000_000}


async def test_killed_download_resumes_in_the_next_process(web: ArchiveServer, cache: Path) -> None:
    url = web.put("mine.zip", zip_of(FILES))
    released, begun = threading.Event(), threading.Event()
    web.fault = hold_until(released, begun, 2_000_000)
    async with FetchingProcess(url) as process:
        await asyncio.to_thread(begun.wait, 60)
        (location,) = (cache / "archives").iterdir()
        async with asyncio.timeout(60):
            while (
                not (location / "partial" / "archive").exists()
                or not (location / "partial" / "archive").stat().st_size >= 2_000_000
            ):
                await asyncio.sleep(0.02)
        await process.kill()
    released.set()
    web.fault = None
    assert files_below(await fetch(RemoteModel(url))) == FILES
    assert web.requests[-1][1]["Range"] == "bytes=2000000-"
    assert len(copies(cache)) == 1


async def test_two_processes_download_once(web: ArchiveServer) -> None:
    url = web.put("mine.zip", zip_of(FILES))
    released, begun = threading.Event(), threading.Event()
    held = hold_until(released, begun, 1000)
    web.fault = lambda request, data: begun.is_set() or held(request, data)
    async with FetchingProcess(url) as first:
        await asyncio.to_thread(begun.wait, 60)
        async with FetchingProcess(url) as second:
            await second.logged("is already being copied by another process: waiting for it")
            released.set()
            folders = {await first.folder(), await second.folder()}
    assert len(folders) == 1
    assert files_below(folders.pop()) == FILES


async def test_copy_that_was_damaged_is_made_again(web: ArchiveServer) -> None:
    url = web.put("mine.zip", zip_of(FILES))
    folder = await fetch(RemoteModel(url))
    (folder / "model.safetensors").write_bytes(b"")
    assert files_below(await fetch(RemoteModel(url))) == FILES


async def test_rest_of_a_killed_process_is_removed(web: ArchiveServer, cache: Path) -> None:
    url = web.put("mine.zip", zip_of({"a": b"1"}))
    folder = await fetch(RemoteModel(url))
    left = folder.parents[1] / "0123.new" / ".unpacked"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"1")
    web.put("mine.zip", zip_of({"a": b"2"}), '"2"')
    await fetch(RemoteModel(url))
    assert "0123.new" not in copies(cache)


async def test_last_copy_is_served_where_there_is_no_network(
    web: ArchiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = web.put("mine.zip", zip_of(FILES))
    folder = await fetch(RemoteModel(url))
    web.statuses["mine.zip"] = 503
    assert await fetch(RemoteModel(url)) == folder
    assert f"{url}: the server answered 503. The copy made earlier is served, which may be out of date" in (
        caplog.messages
    )
    web.statuses["mine.zip"] = 403
    assert await error_of(url) == (
        f"{url}: the server refuses access: check the URL, whose signature may have expired (status 403)"
    )


async def test_secrets_are_sent_and_not_told(web: ArchiveServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    web.put("mine.zip", zip_of(FILES))
    host = web.url.removeprefix("http://")
    folder = await fetch(RemoteModel(f"http://user:pass%40word@{host}/mine.zip?X-Amz-Signature=hidden"))
    path, headers = web.requests[0]
    assert path == "/mine.zip?X-Amz-Signature=hidden"
    assert headers["Authorization"] == "Basic dXNlcjpwYXNzQHdvcmQ="
    told = "".join(caplog.messages) + (folder.parents[1] / "current.json").read_text()
    assert "hidden" not in told
    assert "pass" not in told
    again = await fetch(RemoteModel(f"http://{host}/mine.zip?X-Amz-Signature=other"))
    assert again == folder
    missing = await error_of(f"http://user:secret@{host}/none.zip?sig=hidden")
    assert missing == f"http://{host}/none.zip: the server has no such file: check the URL (status 404)"


@pytest.mark.parametrize(
    "fields",
    [
        "X-Amz-Date={0}&X-Amz-Signature={0}",
        "GoogleAccessId=me&Expires={0}&Signature={0}",
        "sv=2026-01-01&st={0}&se={0}&sr=b&sp=r&spr=https&skoid=a&sktid=b&skt={0}&ske={0}&sks=b&skv=c&sig={0}",
    ],
)
def test_url_that_is_signed_anew_has_the_same_copy(tmp_path: Path, fields: str) -> None:
    first, second, other = (
        Copies(RemoteModel(f"https://models.example/m.zip?{query}"), tmp_path).folder
        for query in (f"id=7&{fields.format(1)}", f"id=7&{fields.format(2)}", f"id=8&{fields.format(1)}")
    )
    assert first == second != other


async def test_redirects(web: ArchiveServer) -> None:
    web.put("mine.zip", zip_of(FILES))
    web.redirects |= {"latest.zip": "/mine.zip", "circle.zip": "/circle.zip", "file.zip": "file:///etc/passwd"}
    host = web.url.removeprefix("http://")
    folder = await fetch(RemoteModel(f"http://user:secret@{host}/latest.zip"))
    assert files_below(folder) == FILES
    assert "Authorization" not in web.requests[-1][1]
    assert await error_of(f"{web.url}/circle.zip") == (
        f"{web.url}/circle.zip: more than 5 redirects, or a redirect loop"
    )
    assert "redirects to file://, which is not supported" in await error_of(f"{web.url}/file.zip")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"<html>Please log in</html>" * 100, "this is a web page and not an archive: check the URL"),
        (os.urandom(2000), "this is not a supported archive: pack it as .zip, .tar.gz or .tar"),
        (b"", "this is not a supported archive"),
        (zip_of(FILES)[:-30], "the archive is damaged or cut off"),
        (zip_of({"../x": b""}), "the archive cannot be unpacked: '../x' points outside the archive"),
    ],
)
async def test_what_is_no_archive(web: ArchiveServer, cache: Path, data: bytes, why: str) -> None:
    url = web.put("mine.zip", data)
    message = await error_of(url)
    assert message.startswith(f"{url}: {why}")
    (location,) = (cache / "archives").iterdir()
    assert not [path for path in location.rglob("*") if path.stat().st_size > 1000 and path.is_file()]
    assert not list(location.glob("*.new"))


async def test_checksum(web: ArchiveServer) -> None:
    data = zip_of(FILES)
    url, digits = web.put("mine.zip", data), hashlib.sha256(data).hexdigest()
    folder = await fetch(RemoteModel(f"{url}#sha256={digits}"))
    assert files_below(folder) == FILES
    requests = len(web.requests)
    assert await fetch(RemoteModel(f"{url}#sha256={digits.upper()}")) == folder
    assert len(web.requests) == requests  # it cannot have changed
    other = "0" * 64
    assert await error_of(f"{url}#sha256={other}") == (
        f"{url}: the SHA-256 of the download is {digits}, not {other} as in the URL"
    )
    assert await error_of(f"{url}#md5=1") == (
        f"{url}: the part after # must be sha256= and 64 hexadecimal digits. Given: md5=1"
    )


async def test_server_that_is_not_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/m.zip"
        assert await error_of(url) == f"{url}: the server cannot be reached (Connection refused)"
    assert await error_of("https://nowhere.invalid/m.zip") == (
        "https://nowhere.invalid/m.zip: the name of the host is unknown: check it, and this host's DNS"
    )
    assert await error_of("http://127.0.0.1:1/my model.zip?sig=hidden") == (
        "http://127.0.0.1:1/my model.zip: this URL, or one that the server redirects to, is not valid: check its host "
        "and port, and write blanks as %20"
    )


async def test_bounds_of_the_environment(web: ArchiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    url = web.put("mine.zip", zip_of(FILES))
    monkeypatch.setenv("LMI_MAX_UNPACKED_BYTES", "1000000")
    assert "LMI_MAX_UNPACKED_BYTES=1000000" in await error_of(url)
    assert len(web.requests) == 1
    monkeypatch.setenv("LMI_MAX_UNPACKED_BYTES", "10000000")
    monkeypatch.setenv("LMI_MAX_UNPACKED_FILES", "2")
    assert "LMI_MAX_UNPACKED_FILES=2" in await error_of(url)


def test_archive_on_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    archive = tmp_path / "mine.tar"
    archive.write_bytes(tar_of(FILES, compressed=False))
    folder = local_directory(str(archive))
    assert (folder.name, files_below(folder)) == ("mine", FILES)
    assert cached_directory(str(archive)) == folder
    archive.write_bytes(tar_of({"a": b"1"}, compressed=False))
    assert files_below(local_directory(str(archive))) == {"a": b"1"}
