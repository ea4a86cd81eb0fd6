"""Real models that come and go hold no event loop, in CPU time of the loop's own thread, and leave nothing behind."""

import asyncio
import gc
import os
from pathlib import Path

import psutil
import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.management.asking import ask, generated, register
from tests.longest_hold import longest_hold

HELLO = Path(__file__).parents[3] / "examples" / "hello"
HELD = 0.02  # seconds
TIMES = 4  # the first one imports what it needs; on a busy machine, to give memory back is CPU time too
GROWTH = 8 * 1024**2  # bytes of memory


async def load_and_unload(server: RunningServer) -> None:
    answer = await register(server, HELLO, **{"option.rolling_batch": "torch"})
    assert answer.status == 200, answer.body
    assert await generated(server, "/predictions/hello") != ""
    assert (await ask(server, "DELETE", "/models/hello")).status == 200


@pytest.mark.torch
async def test_loading_a_model_holds_no_loop_and_leaves_nothing_behind(serve: Serve, model_dir: ModelDirectory) -> None:
    server, process = await serve(model_dir({"serving.properties": SCRIPTED}, "first")), psutil.Process()

    def left() -> tuple[int, int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(process.children(recursive=True)), len(asyncio.all_tasks())

    await load_and_unload(server)
    before, memory, held = left(), process.memory_info().rss, dict[float, str]()
    for _ in range(TIMES - 1):
        gc.collect()
        with longest_hold() as hold:
            await load_and_unload(server)
        held[hold.seconds] = hold.callback
    assert min(held) < HELD, held
    assert left() == before
    assert process.memory_info().rss - memory < GROWTH
