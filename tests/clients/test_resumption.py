"""A hundred answers of all dialects, under which the worker is killed and then stopped: no client sees it."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from lmi_core.workers import supervisor
from lmi_plugins.backends.torch import TorchBackend
from lmi_plugins.torch_engine.client.client import EngineClient
from tests.clients.test_every_dialect import DIALECTS, HELLO, QUESTIONS
from tests.conftest import RunningServer, Serve

COUNT = 96  # requests at once
PROPERTIES = f"option.rolling_batch=torch\noption.heartbeat_timeout=5\noption.max_rolling_batch_size={COUNT}\n"


async def ask(server: RunningServer, name: str, question: str) -> str:
    dialect = DIALECTS[name]
    answer = await server.post(dialect.path, dialect.payload(question))
    assert answer.status == 200, (name, answer.body)
    return dialect.text(answer)


def engine_of(server: RunningServer) -> EngineClient:
    backend = server.model.backend
    assert isinstance(backend, TorchBackend)
    return backend.engine


async def until_half_are_in(engine: EngineClient) -> int:
    """Return the process id of the worker that has at least half of the requests."""
    while engine.replicas.first.process_id is None or engine.in_flight < COUNT // 2:
        await asyncio.sleep(0.005)
    return engine.replicas.first.process_id


async def test_no_client_sees_it(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 5.0)  # in which it is asked below
    directory = tmp_path / "hello"
    shutil.copytree(HELLO, directory)
    (directory / "serving.properties").write_text(PROPERTIES)
    server = await serve(directory)
    engine = engine_of(server)
    asked = [(name, question) for question in QUESTIONS for name in DIALECTS][:COUNT]
    expected = await asyncio.gather(*(ask(server, *each) for each in asked))

    answering = [asyncio.create_task(ask(server, *each)) for each in asked]
    while engine.in_flight + sum(each.done() for each in answering) < COUNT:  # one that came later would be refused
        await asyncio.sleep(0.005)
    killed = engine.replicas.first.process_id
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    while engine.replicas.first.process_id == killed:
        await asyncio.sleep(0.005)
    assert (await server.get("/ping")).status == 503
    assert (await server.post("/invocations", {"inputs": "Hi"})).status == 503  # new ones do not wait for it
    stopped = await until_half_are_in(engine)
    os.kill(stopped, signal.SIGSTOP)
    assert await asyncio.gather(*answering) == expected
    assert engine.replicas.first.process_id not in (None, killed, stopped)
    assert (await server.get("/ping")).status == 200
    assert engine.in_flight == 0


async def test_it_can_be_turned_off(serve: Serve, tmp_path: Path) -> None:
    directory = tmp_path / "hello"
    shutil.copytree(HELLO, directory)
    (directory / "serving.properties").write_text("option.rolling_batch=torch\noption.resume=false\n")
    server = await serve(directory)
    engine = engine_of(server)
    asking = asyncio.create_task(server.post("/invocations", {"inputs": "Tell me a story."}))
    while not engine.in_flight:
        await asyncio.sleep(0)
    assert engine.replicas.first.process_id is not None
    os.kill(engine.replicas.first.process_id, signal.SIGKILL)
    answer = await asking
    assert answer.status == 500
    lost = "the request was lost: the worker ended with exit code -9, as if killed by the system for lack of memory"
    assert answer.json()["error"] == lost
