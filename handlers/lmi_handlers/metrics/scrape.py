"""The values of all metrics at the time of one scrape."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from socket import gethostname

from lmi_core.metrics.model_metrics import ABORTS, REJECTIONS, ModelMetrics, ServerMetrics, TokenCounts
from lmi_core.serving.model import Model
from lmi_handlers.metrics import declared
from lmi_handlers.metrics.declared import Scrape
from lmi_handlers.metrics.families import Families
from lmi_handlers.metrics.vllm_names import VllmFamilies

Scraped = tuple[Model, bool, Mapping[str, TokenCounts]]  # a model, whether it is healthy, its token counts by adapter
Labels = tuple[str, str]  # a model's name, and its version or ""

MICROSECONDS = 1_000_000
VERSION = version("lmi-handlers")
MAX_DETAILED = 50  # models whose histograms have all buckets; each takes as much text as three without
ALERTS = REJECTIONS - {"rate_limited"}  # reported from 0 on: Prometheus sees no increase in a series that begins at 1
NO_MODEL = ("", "")  # the labels of requests for which no model was found


def scrape(server: ServerMetrics, models: Sequence[Scraped], asked: Scrape) -> Families:
    """Return the requested metrics, with vLLM's names unless the engine itself reports these; may run in any thread."""
    families = VllmFamilies(asked.names) if asked.as_vllm else Families(asked.names)
    detailed = 0
    families.add(declared.INFO, 1, VERSION)
    _add_requests(families, NO_MODEL, server.without_model, ())
    for model, is_healthy, tokens in models:
        of_engine = list(model.runtime.metrics())
        families.merge(of_engine)
        if asked.as_vllm and of_engine:
            continue
        labels = (model.name, model.version or "")
        _add_requests(families, labels, model.metrics, ALERTS if detailed < MAX_DETAILED else ())
        for adapter, counts in tokens.items():
            families.add(declared.PROMPT_TOKENS, counts.prompt, *labels, adapter)
            families.add(declared.GENERATED_TOKENS, counts.generated, *labels, adapter)
            families.add(declared.CACHED_TOKENS, counts.cached, *labels, adapter)
        detailed += _add_times(families, labels, model.metrics, detailed < MAX_DETAILED)
        _add_state(families, labels, model, is_healthy)
        _add_latest(families, labels, model)
    host = gethostname()
    families.add(declared.RESPONSE_2XX, server.statuses.get(2, 0), host)
    families.add(declared.RESPONSE_4XX, server.statuses.get(4, 0), host)
    families.add(declared.RESPONSE_5XX, server.statuses.get(5, 0), host)
    families.add(declared.SERVER_ERROR, server.unexpected, host)
    families.add(declared.WLM_ERROR, server.refused, host)
    return families


def _add_requests(families: Families, model: Labels, metrics: ModelMetrics, expected: Iterable[str]) -> None:
    """Add the requests that ended, and for the expected reasons of rejections also the number 0."""
    rejected, aborted = Counter(dict.fromkeys(sorted(expected), 0)), Counter[str]()
    for outcome, count in list(metrics.outcomes.items()):
        families.add(declared.REQUESTS, count, *model, *outcome)
        if outcome.reason in REJECTIONS:
            rejected[outcome.reason] += count
        if outcome.reason in ABORTS:
            aborted[outcome.reason] += count
    for reason, count in rejected.items():
        families.add(declared.REJECTED, count, *model, reason)
    for reason, count in aborted.items():
        families.add(declared.ABORTED, count, *model, reason)


def _add_times(families: Families, model: Labels, metrics: ModelMetrics, is_detailed: bool) -> bool:
    """Add the times that were measured, with the counts of each bound if detailed; return whether there are any."""
    times = (
        (declared.TIME_TO_FIRST_TOKEN, metrics.time_to_first_token),
        (declared.TIME_PER_TOKEN, metrics.time_per_token),
        (declared.END_TO_END, metrics.end_to_end),
        (declared.QUEUE_TIME, metrics.queue_time),
    )
    measured = [(each, histogram) for each, histogram in times if histogram.count]
    for each, histogram in measured:
        families.add(each, histogram if is_detailed else histogram.without_bounds(), *model)
    if metrics.end_to_end.count:
        families.add(declared.ENGINE_TIME, metrics.engine_time, *model)
        families.add(declared.SERVER_TIME, metrics.server_time, *model)
    return bool(measured)


def _add_state(families: Families, labels: Labels, model: Model, is_healthy: bool) -> None:
    figures, counts = model.runtime.figures(), model.sequence_counts
    families.add(declared.READY, int(is_healthy), *labels)
    families.add(declared.IN_FLIGHT, sum(counts), *labels)
    families.add(declared.QUEUE_SIZE, model.admission.maximum, *labels)
    families.add(declared.RUNNING, counts.running, *labels)
    families.add(declared.ROLLING_BATCH_SIZE, counts.running, _djl_name(labels))
    families.add(declared.WAITING, counts.waiting, *labels)
    families.add(declared.CACHE_USAGE, figures.cache_usage, *labels)
    families.add(declared.PREFIX_QUERIES, figures.looked_up_tokens, *labels)
    families.add(declared.PREFIX_HITS, figures.cached_tokens, *labels)
    families.add(declared.RESTARTS, figures.restarts, *labels)
    families.add(declared.WORKERS, figures.workers, *labels)
    for number, sequences in (figures.sequences or {}).items():
        families.add(declared.WORKER_SEQUENCES, sequences, *labels, str(number))


def _add_latest(families: Families, labels: Labels, model: Model) -> None:
    """Add DJLServing's gauges: the values of the latest successful request."""
    latest, seconds, name = model.metrics.latest, model.metrics.latest_end_to_end, _djl_name(labels)
    if latest is None:
        return
    families.add(declared.LATEST_QUEUE_TIME, round(latest.queue_time * MICROSECONDS), name)
    families.add(declared.LATEST_LATENCY, round(seconds * MICROSECONDS), name)
    if latest.generated_tokens and latest.engine_time:
        tokens = latest.generated_tokens
        families.add(declared.LATEST_TOKEN_LATENCY, round(latest.engine_time / tokens * MICROSECONDS), name)
        families.add(declared.LATEST_THROUGHPUT, tokens / latest.engine_time, name)
        families.add(declared.LATEST_TOKENS, tokens, name)


def _djl_name(labels: Labels) -> str:
    """Return a model's name with its version, if it has one."""
    return ":".join(filter(None, labels))
