"""The server's figures under vLLM's names, for dashboards that use these: `GET /metrics?names=vllm`."""

from collections import Counter
from collections.abc import Collection, Mapping
from types import MappingProxyType

from lmi_core.metrics.model_metrics import LEFT, Histogram
from lmi_handlers.metrics import declared
from lmi_handlers.metrics.declared import DeclaredMetric
from lmi_handlers.metrics.families import Families

VLLM_MODEL = ("model_name", "engine")
ENGINE = "0"  # stands for all engines of a model
# Only names with the same meaning as our metric.
_NAMES = {
    declared.RUNNING: "num_requests_running",
    declared.WAITING: "num_requests_waiting",
    declared.CACHE_USAGE: "kv_cache_usage_perc",
    declared.PREFIX_QUERIES: "prefix_cache_queries",
    declared.PREFIX_HITS: "prefix_cache_hits",
    declared.PROMPT_TOKENS: "prompt_tokens",
    declared.GENERATED_TOKENS: "generation_tokens",
    declared.CACHED_TOKENS: "prompt_tokens_cached",
    declared.REQUESTS: "request_success",
    declared.TIME_TO_FIRST_TOKEN: "time_to_first_token_seconds",
    declared.TIME_PER_TOKEN: "request_time_per_output_token_seconds",
    declared.END_TO_END: "e2e_request_latency_seconds",
    declared.QUEUE_TIME: "request_queue_time_seconds",
}
VLLM_METRICS: Mapping[DeclaredMetric, DeclaredMetric] = MappingProxyType(
    {
        own: own._replace(
            name=f"vllm:{name}",
            labels=(*VLLM_MODEL, "finished_reason") if own is declared.REQUESTS else VLLM_MODEL,
        )
        for own, name in _NAMES.items()
    }
)
FINISHED = {"eos_token": "stop", "stop_sequence": "stop", "length": "length", "abort": "abort", LEFT: "abort"}


class VllmFamilies(Families):
    """The families that vLLM has too, under its names; others are omitted."""

    def __init__(self, names: Collection[str] = ()) -> None:
        super().__init__(names)
        self._totals: Counter[tuple[DeclaredMetric, tuple[str, ...]]] = Counter()  # sums over adapters and outcomes

    def add(self, declared: DeclaredMetric, value: float | Histogram | None, *labels: str) -> None:
        theirs = VLLM_METRICS.get(declared)
        if theirs is None or value is None or not labels[0]:  # requests without a model
            return
        model: tuple[str, ...] = (":".join(filter(None, labels[:2])), ENGINE)
        if theirs.labels != VLLM_MODEL:
            reason = FINISHED.get(labels[-1])
            if reason is None:
                return
            model = (*model, reason)
        if isinstance(value, Histogram):
            super().add(theirs, value, *model)
        else:
            self._totals[theirs, model] += value  # type: ignore[assignment]  # a Counter's values are typed as int

    def text(self, *, open_metrics: bool) -> str:
        for (theirs, labels), value in self._totals.items():
            super().add(theirs, value, *labels)
        return super().text(open_metrics=open_metrics)
