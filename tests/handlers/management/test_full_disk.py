"""Registrations while the disk is full: refused, with others served on, and done once there is room."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.archive_server import ArchiveServer, archive_server
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.core.remote.archives.packing import zip_of
from tests.handlers.management.asking import ask, generated, register
from tests.small_disk import SmallDisk, small_disk

MB = 1_000_000
TWO = f"{SCRIPTED}option.scripted_text=two\n".encode()
FORMATTER = b"""
from djl_python.output_formatter import output_formatter

@output_formatter
def shout(request_output):
    best = request_output.sequences[request_output.best_sequence_index]
    return best.get_next_token()[0].text.upper()
"""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 2 * MB) as disk:
        monkeypatch.setenv("LMI_CACHE", str(disk.folder))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield disk


@pytest.fixture
def web() -> Iterator[ArchiveServer]:
    with archive_server() as server:
        yield server


@pytest.fixture
async def server(disk: SmallDisk, serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": f"{SCRIPTED}option.scripted_text=one\n"}, "first"))


async def test_model_for_which_there_is_no_room(server: RunningServer, disk: SmallDisk, web: ArchiveServer) -> None:
    url = web.put("second.zip", zip_of({"serving.properties": TWO, "zeros": bytes(5 * MB)}))
    refused = await register(server, url)
    assert (refused.status, refused.json()["error"]) == (
        400,
        f"{url}: the disk of {disk.folder} is full: free some space, or set LMI_CACHE to a folder on another disk",
    )
    assert [each["modelName"] for each in (await ask(server, "GET", "/models")).json()["models"]] == ["first"]
    assert await generated(server, "/predictions/first") == "one"
    disk.resize(20 * MB)
    assert (await register(server, url)).status == 200
    assert await generated(server, "/predictions/second") == "two"


async def test_adapter_for_which_there_is_no_room(server: RunningServer, disk: SmallDisk, web: ArchiveServer) -> None:
    url = web.put("loud.zip", zip_of({"model.py": FORMATTER, "zeros": bytes(5 * MB)}))
    adapter = {"name": "loud", "src": url}
    refused = await server.post("/models/first/adapters", adapter)
    assert refused.status == 400
    assert refused.json()["error"].startswith(f"`src` cannot be downloaded: {url}: the disk of {disk.folder} is full")
    assert await generated(server, "/predictions/first") == "one"
    disk.resize(20 * MB)
    assert (await server.post("/models/first/adapters", adapter)).status == 200
    answer = await server.post("/predictions/first", {"inputs": "x", "adapters": "loud"})
    assert answer.body == b"ONE"
