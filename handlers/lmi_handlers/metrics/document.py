"""Tables of the declared metrics, updated in a page: `python -m lmi_handlers.metrics.document FILE`."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from lmi_handlers.metrics.declared import DJL_METRICS, OWN_METRICS, DeclaredMetric

MARK = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(text: str) -> str:
    """Return the page with each table put between its marks, `<!-- name -->` and `<!-- end -->`."""
    tables = {"own": _table(OWN_METRICS), "djl": _table(DJL_METRICS)}
    return MARK.sub(lambda mark: f"{mark[1]}{tables[mark[2]]}{mark[3]}", text)


def _table(metrics: Iterable[DeclaredMetric]) -> str:
    rows = [["metric", "kind", "labels", "meaning"], ["---"] * 4]
    for each in metrics:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        rows.append([f"`{each.sample}`", each.kind, labels, each.help.removeprefix("DJLServing's: ")])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(with_tables(document.read_text()))
