"""What is logged of requests, and the route that changes the level."""

import asyncio
import logging
import os
import re
from typing import Any

import pytest
from yarl import URL

from lmi_core.logs.logs import ACCESS_LOG, FIELDS, LOG_LEVEL_VARIABLE
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PROMPT = {"inputs": "a secret word", "parameters": {"max_new_tokens": 2}}
TELLS_ITS_LEVEL = """\
import logging
from djl_python import Output


def handle(inputs):
    if inputs.is_empty():
        return None
    return Output().add(logging.getLevelName(logging.getLogger().getEffectiveLevel()))
"""


@pytest.fixture
async def server(model_dir: ModelDirectory, serve: Serve) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


def fields(caplog: pytest.LogCaptureFixture, request_id: str) -> dict[str, Any]:
    (found,) = [
        getattr(record, FIELDS)
        for record in caplog.records
        if record.name == ACCESS_LOG and getattr(record, FIELDS)["request_id"] == request_id
    ]
    return dict(found)


async def test_a_request_in_parts(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, ACCESS_LOG)
    headers = {"x-request-id": "r1", "traceparent": PARENT}
    assert (await server.post("/invocations", PROMPT, headers=headers)).status == 200
    found = fields(caplog, "r1")
    assert found.pop("seconds") > found.pop("first_token_seconds") > 0
    assert found.pop("queue_seconds") >= 0
    assert found == {
        "request_id": "r1",
        "client": "127.0.0.1",
        "dialect": "lmi",
        "path": "/invocations",
        "status": 200,
        "reason": "length",
        "model": "model",
        "adapter": "",
        "prompt_tokens": 3,
        "generated_tokens": 2,
        "cached_tokens": 0,
        "trace_id": PARENT.split("-")[1],
    }
    assert "secret" not in caplog.text
    assert re.search(r"/invocations 200 in \d+ ms, client 127\.0\.0\.1 \(trace ", caplog.text)
    assert f"(trace {PARENT.split('-')[1]})" in caplog.text


async def test_requests_that_fail_or_ask_no_model(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, ACCESS_LOG)
    await server.post("/predictions/nobody", PROMPT, headers={"x-request-id": "r2"})
    found = fields(caplog, "r2")
    assert (found["status"], found["reason"], found["model"]) == (404, "model_not_found", "")
    await server.get("/v1/models", headers={"x-request-id": "r3"})
    assert fields(caplog, "r3").keys() == {"request_id", "client", "dialect", "path", "status", "seconds"}


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere%0A", 404), ("DELETE", "/invocations", 405)])
async def test_requests_without_a_route(
    server: RunningServer, caplog: pytest.LogCaptureFixture, method: str, path: str, status: int
) -> None:
    caplog.set_level(logging.INFO, ACCESS_LOG)
    async with server.client.request(method, URL(path, encoded=True)) as answer:
        assert answer.status == status
    found = fields(caplog, answer.headers["x-request-id"])
    assert (found["path"], found["status"], found["client"], found["dialect"]) == (path, status, "127.0.0.1", "")


async def test_requests_that_programs_repeat(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, ACCESS_LOG)
    for path in ("/pages/shared/dom.js", "/pages/shared/none.js", "/metrics", "/v1/models"):
        await server.get(path)
    records = [record for record in caplog.records if record.name == ACCESS_LOG]
    assert {getattr(record, FIELDS)["path"]: record.levelname for record in records} == {
        "/pages/shared/dom.js": "DEBUG",
        "/pages/shared/none.js": "INFO",
        "/metrics": "DEBUG",
        "/v1/models": "INFO",
    }


async def test_a_client_that_leaves(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, ACCESS_LOG)
    script = Script("one", hold=True)
    server.scripted.enqueue(script)
    left = asyncio.create_task(server.post("/invocations", PROMPT, headers={"x-request-id": "r4"}))
    await script.started.wait()
    left.cancel()
    await script.closed.wait()
    assert (await server.get("/ping")).status == 200
    found = fields(caplog, "r4")
    assert (found["status"], found["reason"], found["generated_tokens"]) == (499, "client_left", 1)


async def test_prompts_where_they_are_asked_for(
    model_dir: ModelDirectory, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, ACCESS_LOG)
    server = await serve(model_dir({"serving.properties": SCRIPTED + "log_prompts=true\n"}))
    assert (await server.post("/invocations", PROMPT, headers={"x-request-id": "r5"})).status == 200
    assert 'request r5: the prompts were: ["a secret word"]' in caplog.text


@pytest.mark.parametrize(("asked", "level"), [("debug", "debug"), ("WARN", "warning"), ("trace", "debug")])
async def test_the_level_is_changed(server: RunningServer, asked: str, level: str) -> None:
    answer = await server.post(f"/server/logging?level={asked}")
    assert (answer.status, answer.json()) == (200, {"status": "OK", "level": level})
    assert logging.getLogger().level == getattr(logging, level.upper())
    assert os.environ[LOG_LEVEL_VARIABLE] == level  # of workers that are yet to be started


@pytest.mark.parametrize("query", ["", "?level="])
async def test_without_a_level(server: RunningServer, query: str) -> None:
    assert (await server.post("/server/logging?level=error")).status == 200
    answer = await server.post(f"/server/logging{query}")
    assert (answer.json(), logging.getLogger().level) == ({"status": "OK", "level": "info"}, logging.INFO)


async def test_a_level_that_is_none(server: RunningServer) -> None:
    before = logging.getLogger().level
    answer = await server.post("/server/logging?level=loud")
    assert answer.status == 400
    assert "`level`" in answer.json()["error"]
    assert logging.getLogger().level == before


async def test_the_level_reaches_workers(model_dir: ModelDirectory, serve: Serve) -> None:
    server = await serve(model_dir({"model.py": TELLS_ITS_LEVEL}))
    for level in ("info", "error"):
        assert (await server.post(f"/server/logging?level={level}")).status == 200
        async with asyncio.timeout(30):
            while (await server.post("/invocations", {})).body.decode() != level.upper():
                pass


async def test_pages_of_other_sites_may_not_change_it(server: RunningServer) -> None:
    answer = await server.post("/server/logging?level=debug", headers={"Origin": "https://elsewhere.example"})
    assert answer.status == 403
