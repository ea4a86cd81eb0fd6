"""A thousand streams that are left leave nothing behind: no task, no descriptor, no place and no memory."""

import asyncio
import json
import tracemalloc

import pytest

from tests.conftest import ModelDirectory, Serve
from tests.handlers.http.aborted_streams import FEW, growth_since, leave_streams, measure

PROPERTIES = (
    "option.rolling_batch=scripted\noption.scripted_delay=0.002\njob_queue_size=5\noption.max_rolling_batch_size=25\n"
)
COUNT, WARM_UP = 1000, 100
MEMORY = 400_000  # bytes: of one stream that is kept there would be far more in a thousand

ASKED = {"inputs": "hi", "prompt": "hi", "text_input": "hi", "messages": [{"role": "user", "content": "hi"}]}
PATHS = {
    "/invocations": "inputs",
    "/v1/chat/completions": "messages",
    "/v1/completions": "prompt",
    "/v1/messages": "messages",
    "/generate_stream": "inputs",
    "/v2/models/model/generate_stream": "text_input",
    "/api/chat": "messages",
}


def streams() -> list[tuple[str, bytes]]:
    bodies = {path: {name: ASKED[name], "stream": True, "max_tokens": 50} for path, name in PATHS.items()}
    bodies["/api/chat"]["model"] = "model"
    return [(path, json.dumps(body).encode()) for path, body in bodies.items()]


@pytest.mark.slow
async def test_a_thousand_aborted_streams(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": PROPERTIES + "option.scripted_text=" + "word " * 40 + "\n"}))
    await leave_streams(server, streams(), WARM_UP, seed=0)
    server.scripted.history.clear()
    before = await measure()
    tracemalloc.start()
    allocated, _ = tracemalloc.get_traced_memory()
    await leave_streams(server, streams(), COUNT, seed=1)
    assert len(server.scripted.history) > COUNT / 5  # that many began to generate
    server.scripted.history.clear()
    more = await growth_since(before)
    kept = tracemalloc.get_traced_memory()[0] - allocated
    tracemalloc.stop()
    assert more == {}
    assert kept < MEMORY
    assert (await server.post("/invocations", {"inputs": "hi"})).status == 200


async def test_live_timers_alone_count_as_kept() -> None:
    loop = asyncio.get_running_loop()
    before = await measure()
    timers = [loop.call_later(1000, print) for _ in range(2 * FEW)]
    assert [*(await measure()).more_than(before)] == ["asyncio.events.TimerHandle"]
    while timers:
        timers.pop().cancel()
    assert (await measure()).more_than(before) == {}
