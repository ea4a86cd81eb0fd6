"""Admission by what requests would wait for: tokens before theirs, and turns that come too late."""

import asyncio
import resource
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import orjson
import pytest

from lmi_core.admission import admission
from lmi_core.backend import Backend
from lmi_core.errors import BackendUnhealthy
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.request import ValidRequest
from lmi_core.hookspecs import hookimpl
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, LoopClock, ModelDirectory, RunningServer, Serve
from tests.core.admission.dialects import DIALECTS
from tests.loop_clock import until

COMPLETIONS = "/v1/completions"


async def start(serve: Serve, model_dir: ModelDirectory, properties: str) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + properties}))


def words(count: int) -> dict[str, str]:
    return {"prompt": "word " * (count - 1) + "word"}


async def test_prompt_tokens_that_wait(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await start(serve, model_dir, "option.max_num_queued_tokens=10\n")
    prefilled = asyncio.Event()
    held = Script("one", prefilled=prefilled, hold=True)
    server.scripted.enqueue(held)
    first = asyncio.create_task(server.post(COMPLETIONS, words(50)))  # nothing else waits, so it is taken
    while not server.scripted.history:
        await asyncio.sleep(0)
    num_tokens = len(server.scripted.history[0].prompt_ids)
    refused = await server.post(COMPLETIONS, words(1))
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert refused.json()["error"]["message"] == (
        f"the queue has {num_tokens} prompt tokens of other requests, and with this one it would have more than "
        "option.max_num_queued_tokens=10"
    )
    prefilled.set()  # what has its first token does not count any more
    await held.started.wait()
    assert (await server.post(COMPLETIONS, words(9))).status == 200
    first.cancel()
    await held.closed.wait()


async def test_tokens_of_the_request_itself_count(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await start(serve, model_dir, "option.max_num_queued_tokens=10\n")
    held = Script(prefilled=asyncio.Event())
    server.scripted.enqueue(held)
    first = asyncio.create_task(server.post(COMPLETIONS, words(4)))
    await until(lambda: bool(server.scripted.history))
    assert (await server.post(COMPLETIONS, words(9))).status == 503
    assert (await server.post(COMPLETIONS, words(2))).status == 200
    first.cancel()
    await held.closed.wait()


async def test_request_that_could_not_begin_in_time_is_refused_at_once(
    clock: LoopClock, serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "time", SimpleNamespace(monotonic=clock.time))
    limits = "option.max_rolling_batch_size=1\noption.queue_timeout=100\noption.scripted_delay=4\n"
    server = await start(serve, model_dir, limits)
    server.scripted.enqueue(*[Script("one two three four five")] * 100)
    asked = [asyncio.create_task(server.post(COMPLETIONS, words(1))) for _ in range(30)]
    await until(lambda: server.dispatcher.in_flight == 30)
    while sum(task.done() for task in asked) < 5:  # of which it learns how fast it is
        await clock.pass_time(1)
    begun = len(server.scripted.history)
    refused = await server.post(COMPLETIONS, words(1))  # while no time passes
    assert refused.status == 503
    assert "another one would begin in about" in refused.json()["error"]["message"]
    assert int(refused.headers["Retry-After"]) >= 1
    assert len(server.scripted.history) == begun
    while not all(task.done() for task in asked):
        await clock.pass_time(1)
    statuses = Counter([(await task).status for task in asked])
    assert set(statuses) == {200, 503}  # what waited for longer than 100 seconds


class RestartingBackend(ScriptedBackend):
    """A backend whose engine takes no requests for a while."""

    name = "restarting"

    async def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        raise BackendUnhealthy("the engine died and is being restarted", 6.2)
        yield GenerationStep([])


class RestartingPlugin:
    @hookimpl
    def lmi_register_backends(self, register: Callable[[type[Backend[Any]]], None]) -> None:
        register(RestartingBackend)


async def test_every_dialect_says_when_the_engine_may_be_back(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=restarting\n"})
    server = await serve(directory, plugins=[RestartingPlugin()])
    for name, dialect in DIALECTS.items():
        for path, payload in (dialect.whole_request, dialect.stream_request):
            answer = await server.post(path, payload)
            assert (answer.status, answer.headers.get("Retry-After")) == (503, "7"), name
            assert b"is being restarted" in answer.body, name


class Outcome(NamedTuple):
    status: int
    retry_after: str
    seconds: float


async def client(server: RunningServer, body: bytes, gate: asyncio.Event) -> Outcome:
    """Connect, and send a request together with all others; the body follows only if it is asked for."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    await gate.wait()
    begun = time.perf_counter()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    try:
        found = (await reader.read()).partition(b"\r\n\r\n")[0].decode()
    finally:
        writer.close()
    lines = found.split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return Outcome(int(lines[0].split()[1]), headers.get("retry-after", ""), time.perf_counter() - begun)


CLIENTS, ADMITTED = 2000, 40


async def test_two_thousand_clients_at_once(
    serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue answers as many as it has places for, and refuses others without a look at their bodies."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 3 * CLIENTS)), hard))
    server = await start(serve, model_dir, "job_queue_size=20\noption.max_rolling_batch_size=20\n")
    tokenized: list[str] = []
    encode = server.scripted.tokenizer.encode

    def counted(text: str, *args: object) -> Any:
        tokenized.append(text)
        return encode(text, *args)

    monkeypatch.setattr(server.scripted.tokenizer, "encode", counted)
    prefilled = asyncio.Event()
    server.scripted.enqueue(*[Script("one two three", prefilled=prefilled) for _ in range(ADMITTED)])
    gate = asyncio.Event()
    body = orjson.dumps({"prompt": "word " * 200})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with asyncio.timeout(100):
        clients = [asyncio.create_task(client(server, body, gate)) for _ in range(CLIENTS)]
        await asyncio.sleep(0)
        gate.set()
        while sum(task.done() for task in clients) < CLIENTS - ADMITTED:
            await asyncio.sleep(0.05)
        prefilled.set()
        outcomes = await asyncio.gather(*clients)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert Counter(outcome.status for outcome in outcomes) == {503: CLIENTS - ADMITTED, 200: ADMITTED}
    assert {outcome.retry_after for outcome in outcomes if outcome.status == 503} == {*"12345"}
    assert len([text for text in tokenized if text.startswith("word")]) == ADMITTED
    assert len(server.scripted.history) == ADMITTED
    assert grown < 200 * 1024  # KiB, of both sides of all connections
    assert not server.dispatcher.in_flight
    assert (await server.post(COMPLETIONS, words(1))).status == 200


async def test_each_dialect_says_when_to_come_back(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await start(serve, model_dir, "job_queue_size=1\noption.max_rolling_batch_size=1\n")
    held = [Script("one", hold=True) for _ in range(2)]
    server.scripted.enqueue(*held)
    running = [asyncio.create_task(server.post(COMPLETIONS, words(1))) for _ in held]
    await asyncio.gather(*(script.started.wait() for script in held))
    for name, dialect in DIALECTS.items():
        path, payload = dialect.whole_request
        answer = await server.post(path, payload)
        assert (answer.status, answer.headers["Retry-After"] in {*"12345"}) == (dialect.refused, True), name
    for task in running:
        task.cancel()
    await asyncio.gather(*(script.closed.wait() for script in held))
