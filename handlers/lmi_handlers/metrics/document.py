"""Tables of the declared metrics, updated in a page: `python -m lmi_handlers.metrics.document FILE`."""

import sys
from collections.abc import Iterable
from pathlib import Path

from lmi_handlers import marked_tables
from lmi_handlers.metrics.declared import DJL_METRICS, OWN_METRICS, DeclaredMetric


def with_tables(text: str) -> str:
    """Return the page with each table put between its marks."""
    return marked_tables.with_tables(text, {"own": _table(OWN_METRICS), "djl": _table(DJL_METRICS)})


def _table(metrics: Iterable[DeclaredMetric]) -> str:
    rows = []
    for each in metrics:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        rows.append([f"`{each.sample}`", each.kind, labels, each.help.removeprefix("DJLServing's: ")])
    return marked_tables.table(("metric", "kind", "labels", "meaning"), rows)


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(with_tables(document.read_text()))
