"""A request that its client drops is gone from vLLM's scheduler a few steps later."""

import asyncio
from typing import Any

import pytest

from lmi_plugins.vllm_engine.outputs.stream_intervals import StreamIntervals
from tests.plugins.vllm_server import STORY, VllmServer

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

LONG = {"max_new_tokens": 900, "ignore_eos_token": True}
LONG_PROMPT = "one two three " * 270
SOON = 30  # steps of the engine, of the 900 that it would go on for
BATCH = 8  # the fixture's `option.max_rolling_batch_size`


def call(vllm: VllmServer, inputs: str = STORY, **parameters: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(vllm.ask(inputs, **{**LONG, **parameters}))


async def drop(vllm: VllmServer, *calls: asyncio.Task[Any]) -> None:
    """All at once, which leaves the engine nothing to do."""
    assert await vllm.is_working()
    for each in calls:
        each.cancel()
    assert await vllm.until(working=False) < SOON
    for each in calls:
        with pytest.raises(asyncio.CancelledError):
            await each


@pytest.mark.parametrize("interval", [1, 1000])
async def test_a_stream(vllm: VllmServer, monkeypatch: pytest.MonkeyPatch, interval: int) -> None:
    """A stream can be aborted while vLLM coalesces its tokens, as under load."""
    monkeypatch.setattr(StreamIntervals, "choose", lambda _: interval)
    body = {"inputs": STORY, "stream": True, "parameters": LONG}
    async with vllm.server.client.post("/invocations", json=body) as response:
        await response.content.readline()
        assert await vllm.is_working()
        response.close()
        assert await vllm.until(working=False) < SOON


@pytest.mark.parametrize(
    "parameters", [{}, {"n": 4}, {"do_sample": True, "best_of": 4}, {"guided_regex": "[a-z ]{900}"}]
)
async def test_a_whole_answer(vllm: VllmServer, parameters: dict[str, Any]) -> None:
    dropped = call(vllm, **parameters)
    await vllm.until(working=True)
    await drop(vllm, dropped)


async def test_during_prefill(vllm: VllmServer) -> None:
    """Prompts that take many steps of 256 tokens."""
    assert len(vllm.encode(LONG_PROMPT)) > 3 * 256
    dropped = [call(vllm, f"{i} {LONG_PROMPT}", max_new_tokens=20) for i in range(BATCH)]
    await vllm.until(working=True)
    await drop(vllm, *dropped)


async def test_while_queued(vllm: VllmServer) -> None:
    """Aborted requests in the queue never run: the engine is idle once the running ones have ended."""
    running = [call(vllm, max_new_tokens=100 + i) for i in range(BATCH)]
    await vllm.until(working=True)
    queued = [call(vllm) for _ in range(BATCH)]
    await vllm.is_working()
    for each in queued:
        each.cancel()
    answers = await asyncio.gather(*running)
    assert [answer["details"]["generated_tokens"] for answer in answers] == [100 + i for i in range(BATCH)]
    assert await vllm.until(working=False) < SOON


async def test_more_than_fit_dropped_at_once(vllm: VllmServer) -> None:
    dropped = [call(vllm) for _ in range(3 * BATCH)]
    await vllm.until(working=True)
    await drop(vllm, *dropped)


async def sent_and_closed(vllm: VllmServer, turns: int) -> None:
    _, writer = await asyncio.open_connection(vllm.server.server.host, vllm.server.server.port)
    body = b'{"inputs": "Hi", "parameters": {"n": 3, "max_new_tokens": 900, "ignore_eos_token": true}}'
    writer.write(b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    for _ in range(turns):
        await asyncio.sleep(0)
    writer.transport.abort()


async def test_at_any_moment(vllm: VllmServer) -> None:
    """A client may disconnect at any moment, also between two turns of the server's event loop."""
    for turns in range(40):
        await sent_and_closed(vllm, turns)
    await asyncio.sleep(0)
    assert await vllm.until(working=False) < SOON
    assert (await vllm.ask("What is Deep Learning?"))["generated_text"] == "Deep Learning is a really cool field."
    assert not await vllm.is_working()
