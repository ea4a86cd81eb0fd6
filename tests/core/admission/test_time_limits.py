"""Limits in time of requests, in every dialect: the engine's work ends, and the client learns which limit it was."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lmi_core.backend import Backend
from lmi_core.hookspecs import hookimpl
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, Answer, LoopClock, ModelDirectory, RunningServer, Serve
from tests.core.admission.dialects import COMPLETION, DIALECTS, INPUTS, STREAM
from tests.loop_clock import until

LIMIT = 60  # seconds of the event loop's clock
FIRST = f"no first token was generated within option.first_token_timeout={LIMIT} seconds"
FURTHER = f"no further token was generated within option.inter_token_timeout={LIMIT} seconds"
TOTAL = f"the answer was not complete within option.predict_timeout={LIMIT} seconds"
QUEUE = f"the request did not begin within option.queue_timeout={LIMIT} seconds"
EACH_ALONE = "option.rolling_batch=disable\nbatch_size=1\nmax_batch_delay=0\n"


class AutoBackend(ScriptedBackend):
    """The scripted backend in dynamic batches, which name no backend."""

    name = "auto-scripted"
    auto_priority = 1000


class AutoPlugin:
    @hookimpl
    def lmi_register_backends(self, register: Callable[[type[Backend[Any]]], None]) -> None:
        register(AutoBackend)


async def ask_all(
    clock: LoopClock, server: RunningServer, text: str, *, stream: bool, step: float = LIMIT
) -> dict[str, Answer]:
    """Return every dialect's answer of an engine that says a text and nothing more, once that has been closed.

    Once it has begun with all of them, time passes in steps.
    """
    scripts = [Script(text, hold=True) for _ in DIALECTS]
    server.scripted.enqueue(*scripts)
    asked = [dialect.stream_request if stream else dialect.whole_request for dialect in DIALECTS.values()]
    asking = asyncio.gather(*(server.post(path, payload) for path, payload in asked))
    await until(lambda: len(server.scripted.history) == len(scripts))
    for _ in range(round(LIMIT / step)):
        await clock.pass_time(step)
    answers = await asking
    assert all(script.closed.is_set() for script in scripts)
    assert not server.dispatcher.in_flight
    return dict(zip(DIALECTS, answers, strict=True))


@pytest.fixture
async def short_phases(clock: LoopClock, serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    limits = f"option.first_token_timeout={LIMIT}\noption.inter_token_timeout={LIMIT}\n"
    return await serve(model_dir({"serving.properties": SCRIPTED + limits}))


@pytest.mark.parametrize(("text", "message"), [("", FIRST), ("one two", FURTHER)])
async def test_whole_answer_that_comes_too_late(
    clock: LoopClock, short_phases: RunningServer, text: str, message: str
) -> None:
    for name, answer in (await ask_all(clock, short_phases, text, stream=False)).items():
        assert answer.status == DIALECTS[name].late, name
        assert message in answer.body.decode(), name


async def test_stream_that_does_not_begin_has_a_status(clock: LoopClock, short_phases: RunningServer) -> None:
    for name, answer in (await ask_all(clock, short_phases, "", stream=True)).items():
        assert answer.status == DIALECTS[name].late, name
        assert FIRST in answer.body.decode(), name


async def test_stream_that_stalls_ends_with_an_error(clock: LoopClock, short_phases: RunningServer) -> None:
    for name, answer in (await ask_all(clock, short_phases, "one two", stream=True)).items():
        assert answer.status == 200, name
        assert b"one" in answer.body, name
        assert FURTHER in answer.body.decode(errors="replace"), name


async def test_time_without_an_engine_does_not_count(clock: LoopClock, short_phases: RunningServer) -> None:
    script = Script("one two", hold=True)
    short_phases.scripted.enqueue(script)
    asking = asyncio.create_task(short_phases.post("/invocations", INPUTS))
    await script.started.wait()
    (calls,) = short_phases.model.running._calls.values()
    (call,) = calls
    call.engine_time.wait()
    for _ in range(3):
        await clock.pass_time(LIMIT)
    assert not asking.done()
    with call.engine_time.in_engine():
        await clock.pass_time(LIMIT)
        assert FURTHER in (await asking).body.decode()


@pytest.mark.parametrize("stream", [False, True])
async def test_predict_timeout_is_for_the_whole_answer(
    clock: LoopClock, serve: Serve, model_dir: ModelDirectory, *, stream: bool
) -> None:
    step = LIMIT / 4
    slow = f"option.scripted_delay={step}\noption.inter_token_timeout={2 * step}\noption.predict_timeout={LIMIT}\n"
    server = await serve(model_dir({"serving.properties": SCRIPTED + slow}))  # each token is in time
    for name, answer in (await ask_all(clock, server, "word " * 60, stream=stream, step=step)).items():
        assert answer.status == (200 if stream else DIALECTS[name].late), name
        assert TOTAL in answer.body.decode(errors="replace"), name


@pytest.fixture
async def short_queue(clock: LoopClock, serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    """A server that works on one request at a time."""
    return await serve(
        model_dir({"serving.properties": EACH_ALONE + f"option.queue_timeout={LIMIT}\n"}), plugins=[AutoPlugin()]
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_request_whose_turn_does_not_come(clock: LoopClock, short_queue: RunningServer, *, stream: bool) -> None:
    running = Script("one", hold=True)
    short_queue.scripted.enqueue(running)
    first = asyncio.create_task(short_queue.post("/invocations", INPUTS))
    await running.started.wait()
    asked = [dialect.stream_request if stream else dialect.whole_request for dialect in DIALECTS.values()]
    asking = asyncio.gather(*(short_queue.post(path, payload) for path, payload in asked))
    await until(lambda: short_queue.model.turns.waiting == len(asked))
    await clock.pass_time(LIMIT)
    answers = await asking
    for (name, dialect), answer in zip(DIALECTS.items(), answers, strict=True):
        assert (answer.status, "Retry-After" in answer.headers) == (dialect.refused, True), name
        assert QUEUE in answer.body.decode(), name
    assert len(short_queue.scripted.history) == 1  # none of them reached the engine
    first.cancel()
    await running.closed.wait()


async def test_time_in_the_queue_does_not_count_for_the_first_token(
    clock: LoopClock, serve: Serve, model_dir: ModelDirectory
) -> None:
    step = LIMIT / 2
    limits = f"option.first_token_timeout={LIMIT}\noption.scripted_delay={step}\n"
    server = await serve(model_dir({"serving.properties": EACH_ALONE + limits}), plugins=[AutoPlugin()])
    server.scripted.enqueue(*[Script("one two three four")] * 3)
    asking = asyncio.gather(*(server.post("/v1/completions", COMPLETION) for _ in range(3)))
    await until(lambda: server.dispatcher.in_flight == 3)
    for number in range(3):
        await until(lambda number=number: len(server.scripted.history) > number)  # type: ignore[misc]
        for _ in range(3):  # until its last token
            await clock.pass_time(step)
    assert [answer.status for answer in await asking] == [200] * 3


async def test_engine_gets_as_many_sequences_as_it_takes(
    clock: LoopClock, serve: Serve, model_dir: ModelDirectory
) -> None:
    one = f"option.max_rolling_batch_size=1\noption.queue_timeout={LIMIT}\n"
    server = await serve(model_dir({"serving.properties": SCRIPTED + one}))
    running = Script("one", hold=True)
    server.scripted.enqueue(running)
    first = asyncio.create_task(server.post("/invocations", INPUTS))
    await running.started.wait()
    second = asyncio.create_task(server.post("/invocations", INPUTS))
    await until(lambda: server.dispatcher.in_flight == 2)
    await clock.pass_time(LIMIT)
    answer = await second
    assert (answer.status, answer.json()["error"], len(server.scripted.history)) == (503, QUEUE, 1)
    first.cancel()
    await running.closed.wait()
    assert (await server.post("/invocations", INPUTS)).status == 200


@pytest.mark.parametrize("option", ["first_token_timeout", "inter_token_timeout", "queue_timeout"])
async def test_zero_is_unlimited(serve: Serve, model_dir: ModelDirectory, option: str) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + f"option.{option}=0\n"}))
    assert (await server.post("/v1/completions", COMPLETION | STREAM)).status == 200
