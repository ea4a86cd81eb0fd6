"""Every figure in a scrape, compared with what is known otherwise: a known course of requests, by a clock of their own.

Engines' own figures are compared with their work in tests/plugins/torch_engine/worker/test_figures.py and
tests/plugins/vllm_engine/test_statistics.py, and waits in the server with those of clients in test_queue_times.py.
"""

import asyncio
import os
import resource
import signal
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from importlib.metadata import version
from pathlib import Path
from socket import gethostname
from typing import Any
from unittest.mock import AsyncMock

import pytest
from prometheus_client.metrics_core import CounterMetricFamily, Metric

from lmi_core.errors import BackendUnhealthy
from lmi_core.generation.output import GenerationOutput, GenerationStep
from lmi_core.generation.request import ValidRequest
from lmi_core.hookspecs import hookimpl
from lmi_core.metrics import model_metrics, request_record
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_handlers.metrics import declared
from lmi_handlers.metrics.declared import DJL_METRICS, OWN_METRICS, DeclaredMetric
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from lmi_plugins.formatters.json import JsonFormatter
from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.handlers.metrics.test_metrics import OPEN_METRICS, scrape, value

# Seconds of each request, all of which a floating-point number has exactly.
QUEUED, PREFILL, PER_TOKEN, FORMATTING = 0.25, 1.5, 0.0625, 0.125
CACHED = 2  # tokens of each prompt
FIGURES = EngineFigures(
    running=1,
    waiting=0,
    cache_usage=0.75,
    looked_up_tokens=70,
    cached_tokens=30,
    restarts=4,
    workers=3,
    sequences={1: 5, 2: 6},
)
FIRST_TOKEN = QUEUED + PREFILL
FIRST = FIRST_TOKEN + 2 * PER_TOKEN + FORMATTING  # seconds of the first request, with three tokens
SECOND = FIRST + FIRST_TOKEN + PER_TOKEN  # of the second one, two tokens; all of the first one's are in its prefill
PROPERTIES = """\
option.rolling_batch=timed
option.max_rolling_batch_size=1
job_queue_size=1
"""
PROMPT = "a few words"  # three tokens
STREAMED = {"prompt": PROMPT, "stream": True}
FUNCTION = """\
from djl_python import Output


def handle(inputs):
    return None if inputs.is_empty() else Output().add("done")
"""


class Clock:
    """A clock that only the backend and a formatter move."""

    def __init__(self) -> None:
        self.now = 4096.0

    def __call__(self) -> float:
        return self.now


clock = Clock()


class TimedBackend(ScriptedBackend):
    """A scripted backend whose requests take known times, by the test's clock."""

    name = "timed"

    def figures(self) -> EngineFigures:
        return FIGURES

    def metrics(self) -> Iterable[Metric]:
        return [CounterMetricFamily("engine:steps", "Steps.", value=5)]

    async def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        first = True
        async with aclosing(super().generate(request)) as steps:
            async for step in steps:
                clock.now += FIRST_TOKEN if first else PER_TOKEN
                if first:
                    step.queue_time, step.cached_tokens = QUEUED, CACHED
                first = False
                yield step


class Plugin:
    """A registration of the backend."""

    @hookimpl
    def lmi_register_backends(self, register: Any) -> None:
        register(TimedBackend)


def format_slowly(formatter: JsonFormatter, output: GenerationOutput) -> bytes:
    """Write an answer of the first request, which takes a known time."""
    clock.now += FORMATTING if output.finished else 0.0
    return write_json(formatter, output)


write_json = JsonFormatter.format
Values = Mapping[tuple[str, ...], float | Sequence[float]]  # by labels; those of a histogram one by one
M, HOST = ("model", ""), (gethostname(),)
WHILE_TWO_RUN: Mapping[DeclaredMetric, Values] = {
    declared.READY: {M: 1},
    declared.IN_FLIGHT: {M: 2},
    declared.QUEUE_SIZE: {M: 2},
    declared.RUNNING: {M: 1},  # as the engine says
    declared.WAITING: {M: 1},
    declared.ROLLING_BATCH_SIZE: {("model",): 1},
}
AT_THE_END: Mapping[DeclaredMetric, Values] = {
    declared.REQUESTS: {
        (*M, "french", "lmi", "200", "eos_token"): 1,
        (*M, "", "openai_completions", "200", "length"): 1,
        (*M, "", "openai_completions", "200", "generation_failed"): 1,
        (*M, "", "openai_completions", "400", "invalid_payload"): 1,
        (*M, "", "openai_completions", "499", "client_left"): 1,
        (*M, "", "lmi", "500", "internal"): 1,
        (*M, "", "lmi", "503", "overloaded"): 1,
        ("", "", "", "lmi", "404", "model_not_found"): 1,
    },
    declared.REJECTED: {(*M, "overloaded"): 1, (*M, "backend_unhealthy"): 0, (*M, "model_not_ready"): 0},
    declared.ABORTED: {(*M, "client_left"): 1},
    declared.PROMPT_TOKENS: {(*M, "french"): 3, (*M, ""): 9},
    declared.GENERATED_TOKENS: {(*M, "french"): 3, (*M, ""): 2 + 1 + 2},
    declared.CACHED_TOKENS: {(*M, "french"): CACHED, (*M, ""): 3 * CACHED},
    declared.TIME_TO_FIRST_TOKEN: {M: [FIRST_TOKEN, FIRST + FIRST_TOKEN, FIRST_TOKEN, FIRST_TOKEN]},
    declared.TIME_PER_TOKEN: {M: [PER_TOKEN, PER_TOKEN]},
    declared.END_TO_END: {M: [FIRST, SECOND]},
    declared.QUEUE_TIME: {M: [QUEUED, QUEUED]},
    declared.ENGINE_TIME: {M: FIRST + SECOND - 2 * QUEUED - FORMATTING},
    declared.SERVER_TIME: {M: FORMATTING},
    declared.CACHE_USAGE: {M: 0.75},
    declared.PREFIX_QUERIES: {M: 70},
    declared.PREFIX_HITS: {M: 30},
    declared.RESTARTS: {M: 4},
    declared.WORKERS: {M: 3},
    declared.WORKER_SEQUENCES: {(*M, "1"): 5, (*M, "2"): 6},
    declared.INFO: {(version("lmi-handlers"),): 1},
    declared.RESPONSE_2XX: {HOST: 3},
    declared.RESPONSE_4XX: {HOST: 3},
    declared.RESPONSE_5XX: {HOST: 2},
    declared.SERVER_ERROR: {HOST: 1},
    declared.WLM_ERROR: {HOST: 1},
    declared.LATEST_QUEUE_TIME: {("model",): 1e6 * QUEUED},
    declared.LATEST_LATENCY: {("model",): 1e6 * SECOND},
    declared.LATEST_TOKEN_LATENCY: {("model",): 1e6 * (SECOND - QUEUED) / 2},
    declared.LATEST_THROUGHPUT: {("model",): round(2 / (SECOND - QUEUED), 9)},
    declared.LATEST_TOKENS: {("model",): 2},
}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> RunningServer:
    for module in (request_record, model_metrics):
        monkeypatch.setattr(module, "perf_counter", clock)
    monkeypatch.setattr(JsonFormatter, "format", format_slowly)
    directory = model_dir({"serving.properties": PROPERTIES, "adapters/french/model.py": ""})
    return await serve(directory, plugins=[Plugin()])


def found(families: Mapping[str, Metric], metric: DeclaredMetric) -> dict[tuple[str, ...], Any]:
    """Return a metric's values by its labels; of a histogram, sum and counts."""
    values: dict[tuple[str, ...], Any] = {}
    for sample in families[metric.name].samples:
        labels = tuple(sample.labels.get(name, "") for name in metric.labels)
        if metric.kind == "histogram":
            values.setdefault(labels, {})[sample.name.removeprefix(metric.name), sample.labels.get("le")] = sample.value
        else:
            values[labels] = sample.value
    return values


def expected(
    metric: DeclaredMetric, values: Values, known: Mapping[tuple[str, ...], Any]
) -> dict[tuple[str, ...], Any]:
    """Return these values; of a histogram, with the counts of its bounds."""
    wanted: dict[tuple[str, ...], Any] = {}
    for labels, each in values.items():
        if isinstance(each, list):
            bounds = [bound for part, bound in known[labels] if part == "_bucket"]
            assert bounds[-1] == "+Inf", metric.name
            assert len(bounds) > 10, metric.name
            wanted[labels] = {("_bucket", le): sum(one <= float(le) for one in each) for le in bounds}
            wanted[labels] |= {("_sum", None): sum(each), ("_count", None): len(each)}
        else:
            wanted[labels] = each
    return wanted


def compare(families: Mapping[str, Metric], wanted: Mapping[DeclaredMetric, Values]) -> None:
    for metric, values in wanted.items():
        scraped = found(families, metric)
        assert scraped == expected(metric, values, scraped), metric.name


async def scrape_after(server: RunningServer, requests: int) -> dict[str, Metric]:
    """Return a scrape after so many requests have ended."""
    async with asyncio.timeout(60):
        while True:
            families = await scrape(server)
            if sum(value(families, f"Response_{digit}XX_total") for digit in (2, 4, 5)) == requests:
                return families


async def test_requests_of_a_known_course(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = server.model.backend
    assert isinstance(backend, TimedBackend)
    first, second = asyncio.Event(), asyncio.Event()
    backend.enqueue(Script("one two three", prefilled=first), Script("one two three", prefilled=second))
    asked = [asyncio.create_task(server.post("/invocations", {"inputs": PROMPT, "adapters": "french"}))]
    async with asyncio.timeout(60):
        while len(backend.history) < 1:
            await asyncio.sleep(0)
        asked.append(asyncio.create_task(server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 2})))
        while len(backend.history) < 2:
            await asyncio.sleep(0)
    assert (await server.post("/invocations", {"inputs": PROMPT})).status == 503
    compare(await scrape(server), WHILE_TWO_RUN)
    first.set()
    await scrape_after(server, 2)
    second.set()
    assert [each.status for each in await asyncio.gather(*asked)] == [200, 200]

    backend.enqueue(Script("one", error="no more"))
    assert (await server.post("/v1/completions", STREAMED)).status == 200
    left = Script("one two", hold=True)
    backend.enqueue(left)
    asking = asyncio.create_task(server.post("/v1/completions", STREAMED))
    await left.started.wait()
    asking.cancel()
    await left.closed.wait()
    assert (await server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": "many"})).status == 400
    assert (await server.post("/predictions/nobody", {"inputs": PROMPT})).status == 404
    with monkeypatch.context() as patch:
        patch.setattr("lmi_handlers.http.answer.validate_all", None)
        assert (await server.post("/invocations", {"inputs": PROMPT})).status == 500
    compare(await scrape_after(server, 8), AT_THE_END)


def test_each_declared_metric_is_compared() -> None:
    """A metric without a known value is one that nobody may trust."""
    assert {*WHILE_TWO_RUN, *AT_THE_END} == {*OWN_METRICS, *DJL_METRICS}


async def test_a_model_that_is_not_loaded(server: RunningServer) -> None:
    server.model.ready = False
    assert value(await scrape(server), "lmi_model_ready") == 0


async def test_a_model_whose_engine_is_replaced(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with a dead engine is loaded, but not ready, as for the readiness routes."""
    monkeypatch.setattr(server.model.runtime, "health", AsyncMock(side_effect=BackendUnhealthy("it is restarted")))
    assert (await server.get("/readiness")).status == 503
    assert value(await scrape(server), "lmi_model_ready") == 0
    monkeypatch.undo()
    assert value(await scrape(server), "lmi_model_ready") == 1


async def test_an_idle_model(server: RunningServer) -> None:
    """The next request loads it."""
    server.model.ready, server.model.idle = False, True
    assert value(await scrape(server), "lmi_model_ready") == 1


@pytest.mark.parametrize("headers", [{}, OPEN_METRICS])
async def test_an_engine_s_own_metrics(server: RunningServer, headers: dict[str, str]) -> None:
    whole = (await server.get("/metrics", headers=headers)).body.decode()
    selected = (await server.get("/metrics?name[]=engine:steps_total", headers=headers)).body.decode()
    assert "lmi_model_ready" in whole
    assert "lmi_model_ready" not in selected
    for text in (whole, selected):
        assert [line for line in text.splitlines() if line.startswith("engine:")] == ["engine:steps_total 5.0"]
        assert text.endswith("\n# EOF\n") == bool(headers)


async def test_workers_and_their_restarts(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"model.py": FUNCTION, "serving.properties": "minWorkers=2\nmaxWorkers=2\n"}))
    pids = server.model.runtime.process_ids()
    families = await scrape(server)
    assert value(families, "lmi_workers") == len([pid for pid in pids if Path(f"/proc/{pid}").exists()]) == 2
    assert value(families, "lmi_worker_restarts_total") == 0
    os.kill(next(iter(pids)), signal.SIGKILL)
    async with asyncio.timeout(60):
        while value(await scrape(server), "lmi_worker_restarts_total") == 0:
            await asyncio.sleep(0.01)
    assert value(await scrape(server), "lmi_worker_restarts_total") == 1


async def test_the_server_s_process(server: RunningServer) -> None:
    await scrape(server)  # which starts a thread
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    begun, open_fds = time.process_time(), len(os.listdir("/proc/self/fd"))
    families = await scrape(server)
    spent, ended = value(families, "process_cpu_seconds_total"), time.process_time()
    tick = 2 / os.sysconf("SC_CLK_TCK")  # the kernel counts the user's and its own time in ticks
    assert begun - tick <= spent <= ended + tick
    for name, line in (("resident", "VmRSS"), ("virtual", "VmSize")):
        assert value(families, f"process_{name}_memory_bytes") == pytest.approx(
            1024 * int(status[line].split()[0]), rel=0.25
        )
    assert abs(value(families, "process_open_fds") - open_fds) <= 3  # connections of the scrape itself
    assert value(families, "process_max_fds") == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    started = value(families, "process_start_time_seconds")
    assert started == pytest.approx(time.time() - _age(), abs=2)  # of which /proc/stat has whole seconds
    assert {name for name in families if name.startswith("process_")} == {
        "process_cpu_seconds",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
    }


def _age() -> float:
    """Return the seconds since this process started, by the clock of the system's own age."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
