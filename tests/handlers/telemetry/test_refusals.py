"""A crowd that is refused does not fill the log, which tells how many there were."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lmi_handlers.telemetry import refusals
from lmi_handlers.telemetry.refusals import LINES
from lmi_handlers.testing import RunningServer
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, LoopClock, ModelDirectory, Serve

CROWD = 40
LIMIT = 60.0
PROPERTIES = SCRIPTED + "job_queue_size=1\noption.max_rolling_batch_size=1\n"
BODY = {"prompt": "Hi"}


@asynccontextmanager
async def full(server: RunningServer) -> AsyncIterator[None]:
    """Hold every place of the queue."""
    scripts = [Script(hold=True), Script(hold=True)]
    server.scripted.enqueue(*scripts)
    held = [asyncio.create_task(server.post("/v1/completions", BODY)) for _ in scripts]
    async with asyncio.timeout(LIMIT):
        for script in scripts:
            await script.started.wait()
    yield
    for each in held:
        each.cancel()
    await asyncio.wait(held)


async def send_refused(server: RunningServer, count: int) -> None:
    answers = await asyncio.gather(*(server.post("/v1/completions", BODY) for _ in range(count)))
    assert {answer.status for answer in answers} == {503}


async def test_the_first_of_each_second_are_logged_and_the_others_counted(
    clock: LoopClock,
    serve: Serve,
    model_dir: ModelDirectory,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusals, "SECONDS", 3600.0)  # which are over when the clock is set forward
    server = await serve(model_dir({"serving.properties": PROPERTIES}))
    caplog.set_level(logging.INFO, "lmi_handlers.http.exchange")
    async with full(server):
        await send_refused(server, CROWD)
        await clock.pass_time(3600)
        async with asyncio.timeout(LIMIT):
            while not (told := [each for each in caplog.messages if "more requests" in each]):
                await asyncio.sleep(0.01)
    assert sum("failed: overloaded: " in each for each in caplog.messages) == LINES
    assert told == [f"{CROWD - LINES} more requests were refused for overload within a second"]


async def test_few_are_all_logged(
    serve: Serve, model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "SECONDS", 0.05)
    monkeypatch.setattr(refusals, "LINES", 1)
    server = await serve(model_dir({"serving.properties": PROPERTIES}))
    caplog.set_level(logging.INFO, "lmi_handlers.http.exchange")
    async with full(server):
        for _ in range(3):
            await send_refused(server, 1)
            await asyncio.sleep(0.2)  # a second, as it counts here, is over
    assert ["failed: overloaded: " in each for each in caplog.messages] == [True] * 3
