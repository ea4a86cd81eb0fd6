"""Snapshots of models on a hub, over a socket."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote.errors import Unreachable
from lmi_core.remote.fetching import fetch
from tests.core.remote.fake_hub import COMMIT, FakeHub, fake_hub

MODEL = RemoteModel("org/tiny")
FILES = {"config.json": b"{}", "model.safetensors": b"weights", "chat templates/a[1].jinja": b"?"}
OTHERS = {"pytorch_model.bin": b"again", "onnx/model.onnx": b"again"}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with fake_hub({**FILES, **OTHERS}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


async def error_of(model: RemoteModel) -> str:
    with pytest.raises(ConfigurationError) as raised:
        await fetch(model)
    return raised.value.message


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def of_model(requests: list[str]) -> list[str]:
    """Return the requests for a model, without those about the library itself."""
    return [request for request in requests if "org/tiny" in request]


async def test_snapshot_without_formats_that_are_not_read(hub: FakeHub, tmp_path: Path) -> None:
    folder = await fetch(MODEL)
    assert folder == tmp_path / "hf/hub/models--org--tiny/snapshots" / COMMIT
    assert contents(folder) == FILES


async def test_a_tokenizer_comes_without_weights(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = await fetch(replace(MODEL, only_tokenizer=True))
    assert set(contents(folder)) == FILES.keys() - {"model.safetensors"}
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert await fetch(replace(MODEL, only_tokenizer=True)) == folder
    assert "no complete copy" in await error_of(MODEL)


async def test_cached_snapshot_takes_one_request(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = await fetch(MODEL)
    hub.requests.clear()
    assert await fetch(MODEL) == folder
    assert of_model(hub.requests) == ["GET /api/models/org/tiny"]
    hub.requests.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert await fetch(MODEL) == folder
    assert hub.requests == []


async def test_new_revision(hub: FakeHub) -> None:
    first = await fetch(MODEL)
    hub.commit, hub.files = "f" * 40, {**FILES, "config.json": b"{1}"}
    second = await fetch(MODEL)
    assert contents(second) == hub.files
    assert await fetch(RemoteModel("org/tiny", "f" * 40)) == second != first


async def test_unreachable_with_a_snapshot(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = await fetch(MODEL)
    monkeypatch.setenv("HF_ENDPOINT", closed_port())
    assert await fetch(MODEL) == folder
    assert f"The snapshot downloaded earlier is served: {folder}" in caplog.text


async def test_unreachable_without_a_snapshot(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    address = closed_port()
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(Unreachable) as raised:
        await fetch(MODEL)
    message = raised.value.message
    assert message.startswith("org/tiny is not a folder, the hub's cache has no complete copy of it, and the hub at ")
    assert f"{address} cannot be reached" in message


def closed_port() -> str:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_snapshot_that_is_not_whole_is_not_served_offline(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    hub.files = {
        "config.json": b"{}",
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-1.safetensors": b"1",
    }
    await fetch(MODEL)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert await error_of(MODEL) == (
        "org/tiny is not a folder, the hub's cache has no complete copy of it, and HF_HUB_OFFLINE is set"
    )


async def test_refusals(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        await error_of(RemoteModel("org/tiny", "v9")) == "org/tiny (v9): the hub has the model, but not this revision"
    )
    assert await error_of(RemoteModel("org/other")) == (
        "org/other is not a folder, and the hub has no such public model: check the name, or set HF_TOKEN to a "
        "token with access to it"
    )
    hub.token, hub.gated = "secret", True
    assert await error_of(MODEL) == (
        "org/tiny: access to this model is restricted: request it on the hub, and set HF_TOKEN to a token with "
        "access to it"
    )
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert contents(await fetch(MODEL)) == FILES


async def test_cancelled_at_once(hub: FakeHub) -> None:
    hub.hold.clear()
    task = asyncio.create_task(fetch(MODEL))
    while not hub.holding:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert hub.holding  # so it did not wait for the file
    hub.hold.set()
    assert contents(await fetch(MODEL)) == FILES
