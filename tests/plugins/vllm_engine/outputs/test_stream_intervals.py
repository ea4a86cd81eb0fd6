"""The stream interval of a request, and its effect on vLLM's own output processing."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import numpy as np
import pytest
from vllm.config import ObservabilityConfig
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
from vllm.v1.outputs import LogprobsLists

from lmi_core.generation.coalescing import MAX_UNDELAYED_STREAMS, SECONDS_PER_STREAM
from lmi_plugins.vllm_engine.engine import VllmEngine
from lmi_plugins.vllm_engine.library import RequestOutputKind, SamplingParams, token_prompt
from lmi_plugins.vllm_engine.outputs.stream_intervals import MEMORY, PERIOD, StreamIntervals

MAX_DELAY = 0.05  # as option.max_stream_delay by default
MANY = 100
PROMPT = [1]
OTHER_ID = 100


class Load:
    """Streams on a clock that stands still between their tokens."""

    def __init__(self, max_delay: float = MAX_DELAY) -> None:
        self.now = 0.0
        self.intervals = StreamIntervals(max_delay, lambda: self.now)

    @contextmanager
    def streams(self, count: int) -> Iterator[None]:
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(self.intervals.stream())
            yield

    def run(self, count: int, seconds_per_token: float, num_outputs: int = 10, tokens_each: int = 1) -> None:
        with ExitStack() as stack:
            clocks = [stack.enter_context(self.intervals.stream()) for _ in range(count)]
            for _ in range(num_outputs):
                for clock in clocks:
                    clock.read(tokens_each)
                self.now += seconds_per_token * tokens_each

    def choice(self, count: int) -> int:
        """Return the stream interval of a request, the last of this many streams."""
        with self.streams(count):
            return self.intervals.choose()


def test_few_streams_get_each_token() -> None:
    load = Load()
    load.run(MANY, 0.001)
    load.now += PERIOD
    assert load.choice(MAX_UNDELAYED_STREAMS) == 1
    assert load.choice(MAX_UNDELAYED_STREAMS + 1) > 1


@pytest.mark.parametrize("seconds_per_token", [0.001, 0.003, 0.007, 0.015, 0.0399, 0.041, 0.3])
@pytest.mark.parametrize("count", [16, 64, 300])
def test_no_token_waits_longer_than_the_bound(count: int, seconds_per_token: float) -> None:
    load = Load()
    load.run(count, seconds_per_token)
    interval = load.choice(count)
    assert (interval - 1) * seconds_per_token <= MAX_DELAY
    if count * SECONDS_PER_STREAM >= MAX_DELAY:
        assert interval * seconds_per_token > 0.999 * MAX_DELAY  # nor fewer tokens than the bound allows


def test_more_streams_wait_longer() -> None:
    load = Load()
    load.run(16, 0.0011)
    assert load.choice(16) == 15
    load.run(64, 0.0011)
    assert load.choice(64) == 46


def test_a_lull_between_waves_of_requests_is_load() -> None:
    load = Load()
    load.run(MANY, 0.001)
    load.now += PERIOD / 2
    assert load.choice(1) == load.choice(MANY) > 1


def test_nothing_waits_before_anything_is_known() -> None:
    assert Load().choice(MANY) == 1


@pytest.mark.parametrize("max_delay", [0.0, 0.005])
def test_a_bound_below_the_time_of_a_token_turns_it_off(max_delay: float) -> None:
    load = Load(max_delay)
    load.run(MANY, 0.006)
    assert load.choice(MANY) == 1


def test_tokens_that_came_together_count_one_by_one() -> None:
    alone, together = Load(), Load()
    alone.run(MANY, 0.011)
    together.run(MANY, 0.011, tokens_each=4)
    assert alone.choice(MANY) == together.choice(MANY) == 5


def test_time_before_an_output_without_tokens_does_not_count() -> None:
    load = Load()
    with load.streams(MANY), load.intervals.stream() as clock:
        for waited, num_tokens in ((0, 1), (0.011, 1), (PERIOD / 2, 0), (0.011, 1)):
            load.now += waited
            clock.read(num_tokens)
    assert load.choice(MANY) == 5


def test_the_busy_seconds_of_late_count() -> None:
    """Fewer streams may soon be as many again, which takes longer; one slow second among others is no rule."""
    load = Load()
    for seconds_per_token in (0.02, 0.018, 0.3):
        load.run(64, seconds_per_token, num_outputs=3)
        load.now += PERIOD
    load.run(16, 0.004, num_outputs=int(PERIOD / 0.004) + 1)
    assert load.choice(64) == load.choice(16) == 3
    load.now += MEMORY
    load.run(64, 0.004)
    assert load.choice(64) == 13


def test_what_is_too_old_does_not_count() -> None:
    load = Load()
    load.run(MANY, 0.01)
    load.now += MEMORY + PERIOD
    assert load.choice(MANY) == 1


def test_more_streams_than_ever_may_be_slower_in_proportion() -> None:
    load = Load()
    load.run(32, 0.004)
    assert load.choice(64) == 1 + int(MAX_DELAY / 0.008)


class Vllm:
    """Stands for AsyncLLM, with one request and vLLM's own processing of what its core puts out."""

    errored = False
    observability_config = ObservabilityConfig()

    def __init__(self, interval: int = 1) -> None:
        self.output_processor = OutputProcessor(None, log_stats=False, stream_interval=interval)
        self.collector = RequestOutputCollector(RequestOutputKind.DELTA, "0")

    async def add_request(
        self, request_id: str, prompt: Any, parameters: SamplingParams, **_: object
    ) -> RequestOutputCollector:
        self.begin(parameters)
        return self.collector

    def begin(self, parameters: SamplingParams) -> None:
        parameters.detokenize, parameters.output_kind = False, RequestOutputKind.DELTA
        request = EngineCoreRequest("0", PROMPT, None, parameters, None, time.time(), None, None, None)
        request.external_req_id = "0"
        self.output_processor.add_request(request, None, queue=self.collector)

    def put_out(self, token_id: int, log_probs: LogprobsLists | None = None, *, last: bool = False) -> None:
        ended = FinishReason.LENGTH if last else None
        output = EngineCoreOutput("0", [token_id], finish_reason=ended, new_logprobs=log_probs)
        self.output_processor.process_outputs([output])


def log_probs_of(token_id: int) -> LogprobsLists:
    """Log probs of the token, and of the likeliest in its place."""
    ids = np.array([[token_id, OTHER_ID]])
    return LogprobsLists(ids, np.array([[-token_id / 10, -0.5]], dtype=np.float32), np.array([2]))


@pytest.mark.parametrize("interval", [1, 3, 1000])
@pytest.mark.parametrize("engines_own", [1, 2])
def test_the_answer_is_the_same_in_fewer_outputs(interval: int, engines_own: int) -> None:
    """The first token comes at once, and so does the last; vLLM's own interval is a lower bound."""
    vllm, read, count = Vllm(engines_own), list[list[int]](), 12
    found = list[Any]()
    vllm.begin(SamplingParams(logprobs=1, stream_interval=interval))
    for token_id in range(count):
        vllm.put_out(token_id, log_probs_of(token_id), last=token_id == count - 1)
        output = cast("Any", vllm.collector.get_nowait())
        if output is not None:
            (completion,) = output.outputs
            read.append(list(completion.token_ids))
            found += zip(completion.token_ids, completion.logprobs, strict=True)
    assert read[0] == [0]
    assert {len(ids) for ids in read[1:-1]} <= {max(interval, engines_own)}
    assert [(token_id, set(log_probs)) for token_id, log_probs in found] == [(i, {i, OTHER_ID}) for i in range(count)]
    assert [log_probs[token_id].logprob for token_id, log_probs in found] == pytest.approx(
        [-i / 10 for i in range(count)]
    )


@pytest.mark.parametrize("coalesces", [False, True])
async def test_a_request_is_given_its_interval(monkeypatch: pytest.MonkeyPatch, coalesces: bool) -> None:
    monkeypatch.setattr(StreamIntervals, "choose", lambda _: 1000)
    vllm, engine, read = Vllm(), VllmEngine({}, 3, MAX_DELAY), list[list[int]]()
    engine._supervisor._running = cast("Any", vllm)

    async def reading() -> None:
        async for output in engine.generate(token_prompt(PROMPT), SamplingParams(), coalesces=coalesces):
            read.append(list(output.outputs[0].token_ids))

    task = asyncio.create_task(reading())
    await asyncio.sleep(0)
    for token_id in range(4):
        vllm.put_out(token_id, last=token_id == 3)
        for _ in range(5):  # passes of the event loop, in which it is read
            await asyncio.sleep(0)
    assert task.done()
    await task
    assert read == ([[0], [1, 2, 3]] if coalesces else [[0], [1], [2], [3]])
