"""Families of metrics, written as text with the values of one scrape."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import inf

from prometheus_client import Metric

from lmi_core.metrics.model_metrics import Histogram
from lmi_handlers.metrics.declared import DeclaredMetric

DIGITS = 9  # decimal places, for nanoseconds


class Families:
    """Metric families by name, each with the values of all models; families without values are omitted.

    The declared ones are written line by line, because prometheus_client takes ten times as long for a thousand models.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        """`names` selects samples; without any, all are included."""
        self._names = names
        self._lines: dict[DeclaredMetric, list[str]] = {}
        self._of_engines: dict[str, Metric] = {}

    def add(self, declared: DeclaredMetric, value: float | Histogram | None, *labels: str) -> None:
        """Add a value with its labels; None adds nothing."""
        if isinstance(value, Histogram):
            shown, counts = _format(declared.labels, labels), value.cumulative()  # requests may end in the meantime
            with_bound = shown and shown + ","
            for bound, count in counts:
                self._write(declared, "_bucket", f'{with_bound}le="{"+Inf" if bound == inf else bound}"', count)
            self._write(declared, "_count", shown, counts[-1][1])
            self._write(declared, "_sum", shown, value.total)
        elif value is not None:
            self._write(declared, "", _format(declared.labels, labels), value)

    def merge(self, metrics: Iterable[Metric]) -> None:
        """Add an engine's own families, merging those of several engines."""
        for metric in metrics:
            family = self._of_engines.get(metric.name)
            if family is None:
                family = self._of_engines[metric.name] = Metric(metric.name, metric.documentation, metric.type)
            family.samples.extend(metric.samples)

    def collect(self) -> Iterator[Metric]:
        """Yield the engines' own families, for the collector interface of prometheus_client."""
        yield from self._of_engines.values()

    def text(self, *, open_metrics: bool) -> str:
        """Return the declared families in OpenMetrics, without its last line, or in Prometheus's text format."""
        written: list[str] = []
        for declared, lines in self._lines.items():
            name = declared.name if open_metrics else declared.sample
            written.append(f"# HELP {name} {declared.help}\n# TYPE {name} {declared.kind}\n")
            written += lines
        return "".join(written)

    def _write(self, declared: DeclaredMetric, part: str, labels: str, value: float) -> None:
        name = declared.sample + part
        if self._names and name not in self._names:
            return
        lines = self._lines.get(declared)
        if lines is None:
            lines = self._lines[declared] = []
        number = value if isinstance(value, int) else round(value, DIGITS)
        lines.append(f"{name}{{{labels}}} {number}\n" if labels else f"{name} {number}\n")


def _format(names: Sequence[str], values: Sequence[str]) -> str:
    """Return labels as text, without empty ones, which mean the same to Prometheus as none."""
    return ",".join([f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True) if value])


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
