"""The statistics of vLLM's engine: its scheduler's state at each step and, if enabled, its own metrics.

vLLM keeps both kinds of statistics or none, and those of requests, which its client counts at every token, would double
the cost per token. So the core is started with statistics, and they are turned off in the client before its loop
starts, unless it writes spans, which contain those of a request. The time of a request in the scheduler's queue is in
the events of its first output.
"""

import threading
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, Metric

from lmi_core.metrics.engine_figures import EngineFigures
from lmi_plugins.vllm_engine.library import (
    AsyncEngineArgs,
    AsyncLLM,
    PrometheusStatLogger,
    RequestStateStats,
    VllmConfig,
    traces,
)

PREFIX = "vllm:"  # prefix of vLLM's metrics

_registering = threading.Lock()  # the registry of the process can contain the metrics of only one engine


class OwnMetrics(PrometheusStatLogger):
    """vLLM's logger that keeps its metrics, which are taken out of the registry of the process."""

    def __init__(self, vllm_config: VllmConfig, engine_indexes: list[int] | None = None) -> None:
        self.collectors: list[Any] = []
        with _registering:
            super().__init__(vllm_config, engine_indexes)
            self.collectors += take_collectors()

    def log_engine_initialized(self) -> None:
        with _registering:
            super().log_engine_initialized()
            self.collectors += take_collectors()


class SchedulerWatch(PrometheusStatLogger):
    """A logger that keeps the latest state of the scheduler, counts prefix cache lookups, and registers no metrics."""

    def __init__(self, vllm_config: VllmConfig, engine_indexes: list[int] | None = None) -> None:
        self.latest: dict[int, Any] = {}  # by engine; data parallelism uses several
        self.looked_up_tokens = 0
        self.cached_tokens = 0

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        """Record vLLM's report of one step."""
        if scheduler_stats is not None:
            self.latest[engine_idx] = scheduler_stats
            prefixes = scheduler_stats.prefix_cache_stats
            self.looked_up_tokens += prefixes.queries
            self.cached_tokens += prefixes.hits

    def record_sleep_state(self, sleep: int = 0, level: int = 0) -> None:
        """Do nothing: engines here do not sleep."""

    def record_admission_rejection(self, reason: str) -> None:
        """Do nothing: requests are admitted by this server."""

    def log(self) -> None:
        """Do nothing."""

    def log_engine_initialized(self) -> None:
        """Do nothing."""


class EngineStatistics:
    """The statistics of one engine."""

    def __init__(self, engine: AsyncLLM, *, full: bool, traced: bool = False) -> None:
        """Attach to an engine that was created with a SchedulerWatch, and with OwnMetrics if `full`.

        Its loop has not started. `traced` means that it writes spans.
        """
        self._requests = engine.output_processor
        loggers = engine.logger_manager.stat_loggers
        (self._watch,) = (each for each in loggers if isinstance(each, SchedulerWatch))
        self._own = [each for each in loggers if isinstance(each, OwnMetrics)]
        if not full:
            loggers[:] = [self._watch]
            engine.log_stats = engine.output_processor.log_stats = traced
            if not traced:
                _keep_queue_times(engine.output_processor)

    def metrics(self) -> Iterator[Metric]:
        """Yield the families of vLLM's own metrics, if enabled."""
        for own in self._own:
            for collector in own.collectors:
                yield from collector.collect()

    def figures(self) -> EngineFigures:
        """Return the state of the scheduler, which does not include the abort of its last request."""
        unfinished = int(self._requests.get_num_unfinished_requests())
        states = list(self._watch.latest.values())
        running = min(unfinished, sum(state.num_running_reqs for state in states))
        usage = sum(state.kv_cache_usage for state in states) / len(states) if states and unfinished else 0.0
        return EngineFigures(
            running=running,
            waiting=unfinished - running,
            cache_usage=usage,
            looked_up_tokens=self._watch.looked_up_tokens,
            cached_tokens=self._watch.cached_tokens,
        )


def _keep_queue_times(processor: Any) -> None:
    """Set the times of a request's queueing and scheduling in its outputs' `metrics`, as vLLM does with statistics."""
    process = processor.process_outputs

    def process_outputs(outputs: list[Any], *arguments: Any, **named: Any) -> Any:
        for output in outputs:
            if output.events and (state := processor.request_states.get(output.request_id)) and state.stats is None:
                queued, scheduled = [event.timestamp for event in output.events[:2]]  # later ones follow a preemption
                state.stats = RequestStateStats(queued_ts=queued, scheduled_ts=scheduled)
        return process(outputs, *arguments, **named)

    processor.process_outputs = process_outputs


_of_engines: WeakKeyDictionary[AsyncLLM, EngineStatistics] = WeakKeyDictionary()


def create_with_statistics(arguments: AsyncEngineArgs) -> AsyncLLM:
    """Create an engine whose statistics `statistics_of` returns."""
    full = not arguments.disable_log_stats
    arguments.disable_log_stats = False
    loggers = [SchedulerWatch, *([OwnMetrics] if full else [])]
    engine = AsyncLLM.from_engine_args(arguments, stat_loggers=loggers)
    _of_engines[engine] = EngineStatistics(engine, full=full, traced=traces(engine))
    return engine


def statistics_of(engine: AsyncLLM) -> EngineStatistics | None:
    return _of_engines.get(engine)


def take_collectors() -> list[Any]:
    """Remove vLLM's metrics from the registry of the process."""
    # Computed as in vLLM: https://github.com/vllm-project/vllm/blob/main/vllm/v1/metrics/prometheus.py
    registered: Iterable[Any] = list(REGISTRY._collector_to_names)
    found = [each for each in registered if str(getattr(each, "_name", "")).startswith(PREFIX)]
    for collector in found:
        REGISTRY.unregister(collector)
    return found
