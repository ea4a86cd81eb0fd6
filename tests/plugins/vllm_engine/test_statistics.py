"""What vLLM's engine tells of itself, beside real requests."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY, Counter
from prometheus_client.parser import text_string_to_metric_families

from lmi_plugins.vllm_engine.library import PrometheusStatLogger
from lmi_plugins.vllm_engine.statistics import EngineStatistics, OwnMetrics, SchedulerWatch, take_collectors
from tests.plugins.vllm_server import STORY, VllmServer

LONG = {"max_new_tokens": 900, "ignore_eos_token": True}
LONG_PROMPT = "one two three " * 100
QUEUE_TIME = "lmi_queue_time_seconds"


async def values(vllm: VllmServer) -> dict[str, float]:
    text = (await vllm.server.get("/metrics")).body.decode()
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.timeout(300)
async def test_the_scheduler_of_an_engine(vllm: VllmServer) -> None:
    before = await values(vllm)
    running = [asyncio.create_task(vllm.ask(STORY, **LONG)) for _ in range(2)]
    async with asyncio.timeout(60):
        while (during := await values(vllm))["lmi_requests_running"] != 2:
            await asyncio.sleep(0)
    assert during["lmi_cache_usage_ratio"] > 0
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    async with asyncio.timeout(60):
        while (after := await values(vllm))["lmi_requests_running"] + after["lmi_requests_waiting"]:
            await asyncio.sleep(0)
    assert after["lmi_cache_usage_ratio"] == 0
    for _ in range(2):
        await vllm.ask(LONG_PROMPT, max_new_tokens=1)
    after = await values(vllm)
    looked_up = after["lmi_prefix_cache_queries_total"] - before.get("lmi_prefix_cache_queries_total", 0)
    assert looked_up >= 2 * len(vllm.encode(LONG_PROMPT))
    assert after["lmi_prefix_cache_hits_total"] > before.get("lmi_prefix_cache_hits_total", 0)
    assert after["lmi_worker_restarts_total"] == 0
    assert not [name for name in after if name.startswith("vllm:")]  # which would cost time at every token
    assert vllm.engine.output_processor.log_stats is False


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.timeout(300)
async def test_waits_in_the_scheduler_are_queue_time(vllm: VllmServer) -> None:
    async def first_token() -> float:
        asked = perf_counter()
        body = {"inputs": STORY, "stream": True, "parameters": {"max_new_tokens": 40, "ignore_eos_token": True}}
        async with vllm.server.client.post("/invocations", data=orjson.dumps(body)) as answer:
            await answer.content.readline()
            first = perf_counter()
            await answer.read()
        return first - asked

    before = await values(vllm)
    waits = await asyncio.gather(*[first_token() for _ in range(48)])  # most wait, some of them in vLLM
    after = await values(vllm)
    count, total = (after[name] - before[name] for name in (f"{QUEUE_TIME}_count", f"{QUEUE_TIME}_sum"))
    assert count == 48
    in_server = sorted(waits)[-8:]
    assert total > sum(in_server)
    assert total <= sum(waits)


CONFIG: Any = None  # of a logger that does not read it


def engine(*loggers: object) -> Any:
    """Return what the statistics need of an engine that was created with these loggers and one of vLLM's."""
    processor = SimpleNamespace(log_stats=True, get_num_unfinished_requests=lambda: 1, process_outputs=None)
    manager = SimpleNamespace(stat_loggers=[SchedulerWatch(CONFIG), *loggers, "vLLM's"])
    return SimpleNamespace(logger_manager=manager, output_processor=processor, log_stats=True)


def test_full_statistics_are_kept_for_each_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that are created at the same time would otherwise replace each other's, or register duplicates."""

    def register(*_: object) -> None:
        Counter("vllm:test_requests", "Requests.", ["model_name"]).labels("m").inc(3)

    monkeypatch.setattr(PrometheusStatLogger, "__init__", register)
    monkeypatch.setattr(PrometheusStatLogger, "log_engine_initialized", lambda _: None)
    with ThreadPoolExecutor(2) as threads:
        first, second = (engine(logger) for logger in threads.map(OwnMetrics, [CONFIG] * 2))
    statistics = EngineStatistics(first, full=True)
    for each in (statistics, EngineStatistics(second, full=True)):
        (family,) = each.metrics()
        assert [(sample.name, sample.value) for sample in family.samples if sample.name.endswith("_total")] == [
            ("vllm:test_requests_total", 3)
        ]
    assert (first.log_stats, first.output_processor.log_stats) == (True, True)
    assert len(first.logger_manager.stat_loggers) == 3
    assert take_collectors() == []
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("vllm:")]


def test_spans_need_the_statistics_of_requests_but_no_metrics() -> None:
    """vLLM's loop would end at the first request whose span it writes otherwise."""
    traced = engine()
    statistics = EngineStatistics(traced, full=False, traced=True)
    assert list(statistics.metrics()) == []
    assert (traced.log_stats, traced.output_processor.log_stats) == (True, True)
    assert len(traced.logger_manager.stat_loggers) == 1


def test_without_them_only_the_scheduler_is_watched() -> None:
    without = engine()
    statistics = EngineStatistics(without, full=False)
    assert list(statistics.metrics()) == []
    assert (without.log_stats, without.output_processor.log_stats) == (False, False)
    (watch,) = without.logger_manager.stat_loggers
    prefixes = SimpleNamespace(queries=10, hits=4)
    watch.record(SimpleNamespace(num_running_reqs=5, kv_cache_usage=0.25, prefix_cache_stats=prefixes), None)
    watch.record(None, None)
    found = statistics.figures()
    assert (found.running, found.waiting, found.cache_usage) == (1, 0, 0.25)  # the others were aborted
    assert (found.looked_up_tokens, found.cached_tokens) == (10, 4)
