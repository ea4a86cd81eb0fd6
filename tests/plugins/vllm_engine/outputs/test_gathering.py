"""Which tokens gather, with vLLM's own processing of outputs and a core that puts out what a test wants."""

import asyncio
import time
import weakref
from collections.abc import Iterator
from typing import Any, cast

import pytest
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import OutputProcessor

from lmi_core.engines import gathering
from lmi_core.engines.gathering import Gathering, GatheringStream
from lmi_plugins.vllm_engine.engine import VllmEngine
from lmi_plugins.vllm_engine.library import (
    EngineDeadError,
    RequestOutputCollector,
    RequestOutputKind,
    SamplingParams,
    token_prompt,
)
from lmi_plugins.vllm_engine.outputs.gathering import GatheringOutputs

PROMPT = [1]


class Vllm:
    """Stands for AsyncLLM, with one request."""

    errored = False

    def __init__(self, interval: int = 1) -> None:
        self.output_processor = OutputProcessor(None, log_stats=False, stream_interval=interval)
        self.collector = RequestOutputCollector(RequestOutputKind.DELTA, "0")

    async def add_request(self, *_: object, **__: object) -> RequestOutputCollector:
        self.begin()
        return self.collector

    def begin(self) -> None:
        sampling = SamplingParams(detokenize=False, output_kind=RequestOutputKind.DELTA)
        request = EngineCoreRequest("0", PROMPT, None, sampling, None, time.time(), None, None, None)
        request.external_req_id = "0"
        self.output_processor.add_request(request, None, queue=self.collector)

    def put_out(self, token_id: int, *, last: bool = False) -> None:
        ended = FinishReason.LENGTH if last else None
        self.output_processor.process_outputs([EngineCoreOutput("0", [token_id], finish_reason=ended)])

    def read(self) -> list[int] | None:
        """What is there to be read."""
        output = self.collector.get_nowait()
        return None if output is None else list(output.outputs[0].token_ids)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[GatheringStream]:
    """One that waits until a test wakes it."""
    monkeypatch.setattr(gathering, "SECONDS_PER_STREAM", 1000)
    with Gathering(1000).stream() as stream:
        yield stream


async def gathers(outputs: GatheringOutputs) -> asyncio.Task[None]:
    task = asyncio.create_task(outputs.gather())
    await asyncio.sleep(0)
    return task


@pytest.fixture
def vllm() -> Vllm:
    return begun(1)


def begun(interval: int) -> Vllm:
    """Its first token was read."""
    vllm = Vllm(interval)
    vllm.begin()
    vllm.put_out(10)
    assert vllm.read() == [10]
    return vllm


def gathering_outputs(vllm: Vllm, stream: GatheringStream) -> GatheringOutputs:
    return GatheringOutputs(cast("Any", vllm), vllm.collector, stream)


async def test_each_token_is_read_once(vllm: Vllm, stream: GatheringStream) -> None:
    outputs = gathering_outputs(vllm, stream)
    for token_ids in ([11, 12], [13], [], [14, 15, 16]):
        task = await gathers(outputs)
        for token_id in token_ids:
            vllm.put_out(token_id)
            assert vllm.collector.output is None
        stream.wake()
        await task
        assert vllm.read() == (token_ids or None)
    vllm.put_out(17)  # while nobody waits
    assert vllm.read() == [17]
    task = await gathers(outputs)
    vllm.put_out(18)
    vllm.put_out(19, last=True)
    await task
    assert vllm.read() == [18, 19]


async def test_the_last_token_may_come_as_the_wait_ends(vllm: Vllm, stream: GatheringStream) -> None:
    task = await gathers(gathering_outputs(vllm, stream))
    vllm.put_out(11)
    stream.wake()
    vllm.put_out(12, last=True)
    await task
    assert vllm.read() == [11, 12]
    assert vllm.read() is None


async def test_nothing_gathers_while_there_is_something_to_read(vllm: Vllm, stream: GatheringStream) -> None:
    outputs = gathering_outputs(vllm, stream)
    vllm.put_out(11)
    await outputs.gather()
    vllm.put_out(12)
    assert vllm.read() == [11, 12]


async def test_an_interval_of_the_engines_own_holds(stream: GatheringStream) -> None:
    vllm = begun(interval=2)
    outputs = gathering_outputs(vllm, stream)
    for token_id in (11, 13):
        await outputs.gather()
        vllm.put_out(token_id)
        assert vllm.read() is None
        vllm.put_out(token_id + 1)
        assert vllm.read() == [token_id, token_id + 1]


async def test_the_engines_death_ends_the_wait(vllm: Vllm, stream: GatheringStream) -> None:
    task = await gathers(gathering_outputs(vllm, stream))
    vllm.put_out(11)
    vllm.output_processor.propagate_error(EngineDeadError())
    await task
    with pytest.raises(EngineDeadError):
        vllm.read()


async def test_nothing_is_kept_of_a_request_that_is_over(vllm: Vllm, stream: GatheringStream) -> None:
    outputs = gathering_outputs(vllm, stream)
    left, state = weakref.ref(outputs), weakref.ref(vllm.output_processor.request_states["0"])
    vllm.put_out(11, last=True)
    assert vllm.read() == [11]
    del outputs
    assert (left(), state()) == (None, None)  # without the garbage collector


async def test_a_request_that_was_over_at_once(stream: GatheringStream) -> None:
    vllm = Vllm()
    vllm.begin()
    vllm.put_out(10, last=True)
    outputs = gathering_outputs(vllm, stream)
    assert vllm.read() == [10]
    await outputs.gather()


@pytest.mark.parametrize("gathers", [False, True])
async def test_only_tokens_between_the_first_and_the_last_gather(
    monkeypatch: pytest.MonkeyPatch, gathers: bool
) -> None:
    monkeypatch.setattr(gathering, "SECONDS_PER_STREAM", 1000)
    vllm, engine, read = Vllm(), VllmEngine({}, 3, 1000), list[list[int]]()
    engine._engine = cast("Any", vllm)

    async def reading() -> None:
        async for output in engine.generate(token_prompt(PROMPT), SamplingParams(detokenize=False), gathers=gathers):
            read.append(list(output.outputs[0].token_ids))

    task = asyncio.create_task(reading())
    await asyncio.sleep(0)
    for token_id in range(4):
        vllm.put_out(token_id, last=token_id == 3)
        for _ in range(5):  # passes of the event loop, in which it is read
            await asyncio.sleep(0)
    assert task.done()
    await task
    assert read == ([[0], [1, 2, 3]] if gathers else [[0], [1], [2], [3]])
