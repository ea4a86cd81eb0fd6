"""Requests that do not finish before the server ends."""

import asyncio
from typing import Any

import pytest

from lmi_core.errors import ModelNotReady
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

ENDLESS = SCRIPTED + "option.scripted_delay=60\n"
MESSAGES = [{"role": "user", "content": "hi"}]
LATE = ModelNotReady("the server is shutting down")
WHY = b"the server is shutting down"
STREAMS: dict[str, dict[str, Any]] = {
    "/invocations": {"inputs": "hi", "stream": True},
    "/v1/chat/completions": {"model": "model", "messages": MESSAGES, "stream": True},
    "/v1/completions": {"model": "model", "prompt": "hi", "stream": True},
    "/v1/messages": {"model": "model", "messages": MESSAGES, "max_tokens": 9, "stream": True},
    "/v1/responses": {"model": "model", "input": "hi", "stream": True},
    "/generate_stream": {"inputs": "hi"},
    "/api/chat": {"model": "model", "messages": MESSAGES},
}
WHOLE = {path: {**body, "stream": False} for path, body in STREAMS.items() if path != "/generate_stream"}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": ENDLESS}))


async def until_in_flight(server: RunningServer, count: int) -> None:
    while server.dispatcher.in_flight < count or len(server.scripted.history) < count:
        await asyncio.sleep(0)


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_ends_with_the_error_in_its_last_frame(server: RunningServer, path: str) -> None:
    async with server.client.post(path, json=STREAMS[path]) as response:
        begun = await response.content.readline()
        await server.dispatcher.drain(0)
        await server.dispatcher.end_requests()
        rest = await response.read()  # complete: a connection that is cut raises
    assert response.status == 200
    assert begun
    assert WHY in rest
    assert server.dispatcher.in_flight == 0


async def test_whole_answers_have_the_status_503(server: RunningServer) -> None:
    asking = [asyncio.create_task(server.post(path, body)) for path, body in WHOLE.items()]
    await until_in_flight(server, len(asking))
    await server.dispatcher.drain(0)
    await server.dispatcher.end_requests()
    for answer in await asyncio.gather(*asking):
        assert WHY in answer.body
        assert answer.status == 503


async def test_nothing_waits_where_nothing_is_in_flight(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    await server.dispatcher.drain(0)
    await server.dispatcher.end_requests()
    assert "did not finish" not in caplog.text


async def test_a_call_that_begins_too_late(server: RunningServer) -> None:
    """The body was still being read when the other calls were ended."""
    server.model.running.fail_all(LATE)
    answer = await server.post("/invocations", {"inputs": "hi"})
    assert (answer.status, answer.json()["error"]) == (503, WHY.decode())


async def test_many_streams_of_which_some_are_not_read(server: RunningServer) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(wait_ended(server))
        await until_in_flight(server, 20)
        await server.dispatcher.drain(0)
        await server.dispatcher.end_requests()
    assert server.dispatcher.in_flight == 0


async def wait_ended(server: RunningServer) -> None:
    answer = await server.post("/invocations", STREAMS["/invocations"])
    assert answer.body.count(WHY) == 1
