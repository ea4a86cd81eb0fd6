"""Triton's routes for the repository index and the models' statistics."""

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

INDEX = "/v2/repository/index"
READY = {"name": "model", "version": "1", "state": "READY", "reason": ""}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


@pytest.mark.parametrize("body", [b"", b"{}", b'{"ready": true}'])
async def test_index(server: RunningServer, body: bytes) -> None:
    answer = await server.post(INDEX, data=body)
    assert (answer.status, answer.json()) == (200, [READY])


async def test_a_model_that_loads(server: RunningServer) -> None:
    server.model.ready = False
    loading = READY | {"state": "LOADING", "reason": "model model is loading"}
    assert (await server.post(INDEX, data=b"")).json() == [loading]
    assert (await server.post(INDEX, {"ready": True})).json() == []


async def test_an_index_that_is_asked_for_wrongly(server: RunningServer) -> None:
    answer = await server.post(INDEX, {"ready": "yes"})
    assert (answer.status, answer.json()) == (400, {"error": "`ready` must be a valid boolean. Given: 'yes'"})


async def counts(server: RunningServer) -> tuple[int, int, int]:
    (model,) = (await server.get("/v2/models/stats")).json()["model_stats"]
    stats = model["inference_stats"]
    assert all(stats[kind] == {"count": 0, "ns": 0} for kind in stats.keys() - {"success", "fail"})
    assert all((stats[kind]["count"] == 0) == (stats[kind]["ns"] == 0) for kind in stats)
    return model["inference_count"], stats["success"]["count"], stats["fail"]["count"]


async def test_requests_of_every_dialect_count(server: RunningServer) -> None:
    assert await counts(server) == (0, 0, 0)
    await server.post("/invocations", {"inputs": "hi"})
    await server.post("/v2/models/model/generate", {"text_input": "hi"})
    assert await counts(server) == (2, 2, 0)
    await server.post("/v1/completions", {"prompt": ["one", "two", "three"], "model": "model"})
    assert await counts(server) == (5, 3, 0)


async def test_failures(server: RunningServer) -> None:
    """A refused request is none, as nothing worked on it."""
    await server.post("/invocations", {"inputs": "hi", "parameters": {"temperature": -1}})
    assert await counts(server) == (0, 0, 0)
    server.scripted.enqueue(Script("one", error="the engine fell over"))
    await server.post("/invocations", {"inputs": "hi"})
    assert await counts(server) == (0, 0, 1)


@pytest.mark.parametrize("path", ["/v2/models/model/stats", "/v2/models/model/versions/1/stats"])
async def test_one_model(server: RunningServer, path: str) -> None:
    (model,) = (await server.get(path)).json()["model_stats"]
    assert (model["name"], model["last_inference"]) == ("model", 0)


async def test_unknown_model_or_version(server: RunningServer) -> None:
    assert (await server.get("/v2/models/other/stats")).status == 404
    assert (await server.get("/v2/models/model/versions/2/stats")).status == 404


async def test_a_model_function(serve: Serve, model_dir: ModelDirectory) -> None:
    function = "from djl_python import Output\ndef handle(inputs):\n    return Output().add('x')\n"
    server = await serve(model_dir({"model.py": function}))
    await server.post("/invocations", {"inputs": "hi"})
    assert await counts(server) == (1, 1, 0)
