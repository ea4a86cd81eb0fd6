"""Tables of the declared metrics, for docs/reference/metrics.md."""

from collections.abc import Iterable

from lmi_handlers.metrics.declared import DJL_METRICS, OWN_METRICS, DeclaredMetric
from lmi_handlers.metrics.vllm_names import VLLM_METRICS
from tools.docs import marked_tables


def with_tables(text: str) -> str:
    """Return the page with each table put between its marks."""
    return marked_tables.with_tables(
        text, {"own": _table(OWN_METRICS), "djl": _table(DJL_METRICS), "vllm": _vllm_names()}
    )


def _vllm_names() -> str:
    rows = [
        [f"`{theirs.sample}`", ", ".join(f"`{label}`" for label in theirs.labels), f"`{own.sample}`"]
        for own, theirs in VLLM_METRICS.items()
    ]
    return marked_tables.table(("metric", "labels", "the same figure as"), rows)


def _table(metrics: Iterable[DeclaredMetric]) -> str:
    rows = []
    for each in metrics:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        rows.append([f"`{each.sample}`", each.kind, labels, each.help.removeprefix("DJLServing's: ")])
    return marked_tables.table(("metric", "kind", "labels", "meaning"), rows)
