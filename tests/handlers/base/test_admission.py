"""Admission of requests for several sequences."""

import asyncio
from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

FOUR_PLACES = SCRIPTED + "job_queue_size=2\noption.max_rolling_batch_size=2\n"
COMPLETIONS = "/v1/completions"


@pytest.fixture
async def server(model_dir: ModelDirectory, serve: Serve) -> RunningServer:
    return await serve(model_dir({"serving.properties": FOUR_PLACES}))


@pytest.mark.parametrize(
    "held", [{"prompt": ["a", "b", "c"]}, {"prompt": "a", "n": 3}, {"prompt": ["a"], "best_of": 3}]
)
async def test_each_sequence_takes_a_place(server: RunningServer, held: dict[str, Any]) -> None:
    scripts = [Script("one", hold=True) for _ in range(3)]
    server.scripted.enqueue(*scripts[: len(held["prompt"])])
    first = asyncio.create_task(server.post(COMPLETIONS, held))
    await scripts[0].started.wait()
    refused = await server.post(COMPLETIONS, {"prompt": ["d", "e"]})
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert refused.json()["error"]["message"] == (
        "model model has 3 other requests in its queue, which has no room for the 2 sequences of this one"
    )
    server.scripted.enqueue(Script("two"))
    assert (await server.post(COMPLETIONS, {"prompt": "d"})).status == 200
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await scripts[0].closed.wait()
    server.scripted.enqueue(*[Script("three")] * 4)
    for _ in range(100):
        answer = await server.post(COMPLETIONS, {"prompt": ["a", "b", "c", "d"]})
        if answer.status == 200:
            return
    raise AssertionError("the places were not given back")


@pytest.mark.parametrize("asked", [{"prompt": ["a"] * 5}, {"prompt": ["a", "b", "c"], "n": 2}])
async def test_more_sequences_than_places_are_never_admitted(server: RunningServer, asked: dict[str, Any]) -> None:
    answer = await server.post(COMPLETIONS, asked)
    assert answer.status == 400
    assert "`prompt` must ask for at most 4 sequences at once" in answer.json()["error"]["message"]
    assert not server.scripted.history
