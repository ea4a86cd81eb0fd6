"""Routes that belong to no dialect."""

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def test_ping(server: RunningServer) -> None:
    answer = await server.get("/ping")
    assert (answer.status, answer.json()) == (200, {"status": "Healthy"})


async def test_ping_while_a_model_is_not_ready(server: RunningServer) -> None:
    server.model.ready = False
    answer = await server.get("/ping")
    assert answer.status == 503
    assert answer.json() == {"status": "Unhealthy", "error": "model model is loading"}
    assert (await server.post("/invocations", {"inputs": "hi"})).status == 503


async def test_ping_while_the_server_drains(server: RunningServer) -> None:
    await server.dispatcher.drain(0)
    assert (await server.get("/ping")).status == 503
    answer = await server.post("/invocations", {"inputs": "hi"})
    assert (answer.status, answer.json()["error"]) == (503, "the server is shutting down")


async def test_unknown_path(server: RunningServer) -> None:
    answer = await server.post("/invocation", {"inputs": "hi"})
    assert (answer.status, answer.json()["code"]) == (404, 404)
    expected = "there is no route POST /invocation. Did you mean `/invocations`? GET /docs shows all"
    assert answer.json()["error"] == expected


async def test_wrong_method(server: RunningServer) -> None:
    answer = await server.get("/invocations")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    assert answer.json()["error"].startswith("/invocations takes POST, not GET.")
