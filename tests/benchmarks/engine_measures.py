"""Measurements of the torch engine alone, in its worker."""

import asyncio
import statistics
import time
from itertools import pairwise
from pathlib import Path

import psutil

from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.client.client import EngineClient
from lmi_plugins.torch_engine.messages.requests import EngineOptions, SamplingParameters
from tests.benchmarks.contenders import VOCABULARY

STREAMS = 4
STREAMED_TOKENS = 400
ARRIVING_LENGTH = 512
ARRIVAL_SECONDS = 0.5

WARM_REQUESTS = 200
ALL_REQUESTS = 2000
AT_ONCE = 32


async def latency(directory: Path) -> tuple[float, float]:
    """Return the p50 and p99 inter-token latency, in seconds, of a stream while long prompts arrive."""
    client = EngineClient(EngineOptions(str(directory)), retry_threshold=0)
    await client.start()
    try:
        await _stream(client, 1)
        arriving = asyncio.create_task(_arrivals(client))
        gaps = [gap for gaps in await asyncio.gather(*(_stream(client, i) for i in range(STREAMS))) for gap in gaps]
        arriving.cancel()
        await asyncio.gather(arriving, return_exceptions=True)
    finally:
        await client.stop()
    percentiles = statistics.quantiles(gaps, n=100)
    return percentiles[49], percentiles[98]


async def _stream(client: EngineClient, number: int) -> list[float]:
    times = []
    async for step in client.generate([number + 1], SamplingParameters(max_new_tokens=STREAMED_TOKENS)):
        times += [time.perf_counter()] * len(step.tokens)
    return [after - before for before, after in pairwise(times)]


async def _arrivals(client: EngineClient) -> None:
    number = 0
    async with asyncio.TaskGroup() as group:
        while True:
            number += 1
            prompt = [1 + (number * 104_729 + place * 7919) % (VOCABULARY - 1) for place in range(ARRIVING_LENGTH)]
            group.create_task(_generate(client, prompt, 4))
            await asyncio.sleep(ARRIVAL_SECONDS)


async def _generate(client: EngineClient, prompt: list[int], count: int) -> None:
    async for _ in client.generate(prompt, SamplingParameters(max_new_tokens=count)):
        pass


async def memory_growth(directory: Path) -> tuple[int, int]:
    """Return the worker's resident bytes after the first requests and after all requests."""
    client = EngineClient(EngineOptions(str(directory)), retry_threshold=0)
    await client.start()
    try:
        assert client.replicas.first.process_id is not None
        worker = psutil.Process(client.replicas.first.process_id)
        await _many(client, range(WARM_REQUESTS))
        early = worker.memory_info().rss
        await _many(client, range(WARM_REQUESTS, ALL_REQUESTS))
        return early, worker.memory_info().rss
    finally:
        await client.stop()


async def _many(client: EngineClient, numbers: range) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with room:
            prompt = [1 + (number * 104_729 + place * 7919) % (VOCABULARY - 1) for place in range(1 + number % 100)]
            await _generate(client, prompt, 1 + number % 17)

    await asyncio.gather(*map(one, numbers))


async def seconds_to_first_token(directory: Path) -> float:
    """Return the seconds from starting the worker to its first token."""
    prompt = HuggingFaceTokenizer.load(str(directory)).encode("Tell me a story.")
    client = EngineClient(EngineOptions(str(directory)), retry_threshold=0)
    begun = time.perf_counter()
    await client.start()
    try:
        async for _ in client.generate(prompt, SamplingParameters(max_new_tokens=2)):
            return time.perf_counter() - begun
        raise AssertionError("no token came")
    finally:
        await client.stop()
