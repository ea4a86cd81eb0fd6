"""Models and adapters that are registered as archives, on a web server and on this host."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lmi_core.remote import locks
from tests.archive_server import ArchiveServer, archive_server
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.core.remote.archives.packing import tar_of, zip_of
from tests.handlers.management.asking import ask, describe, generated, register

FILES = {"serving.properties": f"{SCRIPTED}option.scripted_text=two\n".encode()}
FORMATTER = b"""
from djl_python.output_formatter import output_formatter

@output_formatter
def shout(request_output):
    best = request_output.sequences[request_output.best_sequence_index]
    return best.get_next_token()[0].text.upper()
"""


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ArchiveServer]:
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with archive_server() as server:
        yield server


@pytest.fixture
async def server(web: ArchiveServer, serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}, "first"))


async def test_archive_by_url(server: RunningServer, web: ArchiveServer) -> None:
    web.put("models/second.zip", zip_of(FILES))
    url = f"{web.url}/models/second.zip?X-Amz-Signature=hidden"
    answer = await register(server, url)
    assert (answer.status, answer.json()) == (200, {"status": 'Model "second" registered.'})
    assert await generated(server, "/predictions/second") == "two"
    assert (await describe(server, "second"))["modelUrl"] == f"{web.url}/models/second.zip"
    for path in ("/models", "/console/state"):
        assert b"hidden" not in (await ask(server, "GET", path)).body
    assert (await ask(server, "DELETE", "/models/second")).status == 200


async def test_model_id_by_url(web: ArchiveServer, serve: Serve, model_dir: ModelDirectory) -> None:
    web.put("weights.zip", zip_of({"config.json": b"{}"}))
    url = f"http://user:secret@{web.url.removeprefix('http://')}/weights.zip?X-Amz-Signature=hidden"
    server = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.model_id={url}\n"}))
    assert (await server.get("/info")).json()["model_id"] == f"{web.url}/weights.zip"


async def test_url_that_is_not_valid(server: RunningServer) -> None:
    answer = await register(server, "http://user:secret@[::1/second.zip")
    assert answer.status == 400
    assert answer.json()["error"].startswith("http://[::1/second.zip is not a valid URL: check its host")


@pytest.mark.parametrize("url", ["n" * 300, f"org/{'n' * 300}/m", f"/{'n' * 300}.zip", f"file:///{'n' * 300}", "a\0b"])
async def test_name_that_no_file_has(server: RunningServer, url: str) -> None:
    answer = await register(server, url, model_name="second")
    assert answer.status == 404
    assert answer.json()["error"].startswith(url.removeprefix("file://")[:80])
    assert " does not exist: give the path" in answer.json()["error"]


async def test_endless_url(server: RunningServer) -> None:
    answer = await server.post("/models", {"url": "n/" * 5000, "model_name": "second"})
    assert answer.status == 400
    assert answer.json()["error"].startswith("`url` must have at most 8192 characters")


@pytest.mark.parametrize("form", ["{}", "file://{}"])
async def test_archive_by_path(server: RunningServer, tmp_path: Path, form: str) -> None:
    archive = tmp_path / "second.tar.gz"
    archive.write_bytes(tar_of({f"top/{name}": content for name, content in FILES.items()}))
    assert (await register(server, form.format(archive))).status == 200
    assert await generated(server, "/predictions/second") == "two"


async def test_archives_that_are_refused_leave_nothing(
    server: RunningServer, web: ArchiveServer, tmp_path: Path
) -> None:
    url = web.put("evil.zip", zip_of({**FILES, "../../evil.py": b"1"}))
    answer = await register(server, url)
    assert (answer.status, answer.json()["error"]) == (
        400,
        f"{url}: the archive cannot be unpacked: '../../evil.py' points outside the archive: pack the model directory "
        f"again",
    )
    answer = await register(server, web.put("store.zip", zip_of({"a/config.json": b"{}", "b/config.json": b"{}"})))
    assert "is a folder of several models (a, b): register each of them" in answer.json()["error"]
    answer = await register(server, f"{web.url}/none.zip")
    assert "the server has no such file: check the URL (status 404)" in answer.json()["error"]
    assert not list(tmp_path.rglob("evil.py"))
    assert not list((tmp_path / "cache").rglob("*.new"))
    listed = (await ask(server, "GET", "/models")).json()["models"]
    assert [model["modelName"] for model in listed] == ["first"]
    assert await generated(server, "/predictions/first")


async def test_adapter_as_an_archive(web: ArchiveServer, serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.scripted_text=hello\n"}))
    url = web.put("loud.zip", zip_of({"loud/model.py": FORMATTER}))
    assert (await server.post("/models/model/adapters", {"name": "loud", "src": url})).status == 200
    assert (await server.post("/invocations", {"inputs": "x", "adapters": "loud"})).body == b"HELLO"
    refused = await server.post("/models/model/adapters", {"name": "other", "src": f"{url}x"})
    assert (refused.status, refused.json()["error"]) == (
        400,
        f"`src` cannot be downloaded: {url}x: the server has no such file: check the URL (status 404)",
    )


def is_locked(folder: Path) -> bool:
    """Return whether the only copy of the archive in a folder of the cache is locked."""
    (lock,) = folder.glob("*.lock")
    with locks.try_exclusive(lock) as free:
        return not free


async def test_a_copy_is_locked_as_long_as_a_model_uses_it(
    server: RunningServer, web: ArchiveServer, tmp_path: Path
) -> None:
    url = web.put("second.zip", zip_of(FILES))
    for name in ("a", "b"):
        assert (await register(server, url, model_name=name)).status == 200
    (folder,) = (tmp_path / "cache" / "archives").iterdir()
    assert is_locked(folder)
    assert (await ask(server, "DELETE", "/models/a")).status == 200
    assert is_locked(folder)
    refused = await register(server, url, **{"option.rolling_batch": "nothing"})
    assert refused.status == 400
    assert is_locked(folder)
    assert (await ask(server, "DELETE", "/models/b")).status == 200
    assert not is_locked(folder)
    assert (await register(server, url, **{"option.rolling_batch": "nothing"})).status == 400
    assert not is_locked(folder)  # of a model that failed
    (version,) = [path.name for path in folder.iterdir() if path.is_dir()]
    web.put("second.zip", zip_of({**FILES, "new": b""}), etag='"2"')
    assert (await register(server, url)).status == 200
    assert is_locked(folder)  # there is one, as the former copy has gone
    assert version not in [path.name for path in folder.iterdir()]


async def test_an_idle_model_keeps_its_copy(server: RunningServer, web: ArchiveServer, tmp_path: Path) -> None:
    assert (await register(server, web.put("second.zip", zip_of(FILES)))).status == 200
    (folder,) = (tmp_path / "cache" / "archives").iterdir()
    registry = server.dispatcher.registry
    assert await registry.make_idle(registry.find_registered("second"))
    assert is_locked(folder)
    assert await generated(server, "/predictions/second") == "two"
    assert (await ask(server, "DELETE", "/models/second")).status == 200
    assert not is_locked(folder)


async def test_copies_of_adapters(web: ArchiveServer, serve: Serve, model_dir: ModelDirectory, tmp_path: Path) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    second = model_dir({"serving.properties": SCRIPTED}, "second")
    assert (await register(server, second)).status == 200
    urls = [web.put(f"{name}.zip", zip_of({"loud/model.py": FORMATTER})) for name in ("one", "two")]

    def locked() -> list[str]:
        folders = (tmp_path / "cache" / "archives").iterdir()
        return sorted(folder.name.partition("-")[0] for folder in folders if is_locked(folder))

    adapters = "/models/second/adapters"
    assert (await server.post(adapters, {"name": "loud", "src": urls[0]})).status == 200
    assert (await server.post(adapters, {"name": "loud", "src": urls[1]})).status >= 400  # there is one
    assert locked() == ["one"]
    assert (await server.post(f"{adapters}/loud/update", {"src": urls[1]})).status == 200
    assert locked() == ["two"]
    assert (await ask(server, "DELETE", f"{adapters}/loud")).status == 200
    assert locked() == []
    assert (await server.post(adapters, {"name": "loud", "src": urls[0]})).status == 200
    assert (await ask(server, "DELETE", "/models/second")).status == 200
    assert locked() == []
