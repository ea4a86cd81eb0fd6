"""Families of metrics, filled with the values of one scrape."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from lmi_core.metrics.model_metrics import Histogram
from lmi_handlers.metrics.declared import DeclaredMetric, Kind

FAMILIES: dict[Kind, Callable[..., Metric]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


@dataclass
class Family:
    """A declared metric, and its values by labels."""

    declared: DeclaredMetric
    values: list[tuple[tuple[str, ...], float | Histogram]] = field(default_factory=list)

    def described(self) -> Metric:
        """Return it without values."""
        return FAMILIES[self.declared.kind](self.declared.name, self.declared.help, labels=self.declared.labels)

    def metric(self) -> Metric:
        """Return it with a sample for each value, which takes at least ten times the memory."""
        metric = self.described()
        for labels, value in self.values:
            if isinstance(value, Histogram):
                assert isinstance(metric, HistogramMetricFamily), metric.name
                buckets = [(_shown(bound), float(count)) for bound, count in value.cumulative()]
                metric.add_metric(labels, buckets, value.total)
            else:
                assert isinstance(metric, (CounterMetricFamily, GaugeMetricFamily)), metric.name
                metric.add_metric(labels, value)
        return metric


class Families:
    """Metric families by name, each with the values of all models; families without values are left out."""

    def __init__(self) -> None:
        self._declared: dict[str, Family] = {}
        self._of_engines: dict[str, Metric] = {}

    def add(self, declared: DeclaredMetric, value: float | Histogram | None, *labels: str) -> None:
        """Add a value with its labels; None adds nothing."""
        if value is not None:
            family = self._declared.get(declared.name)
            if family is None:
                family = self._declared[declared.name] = Family(declared)
            family.values.append((labels, value))

    def merge(self, metrics: Iterable[Metric]) -> None:
        """Add an engine's own families, merging those of several engines."""
        for metric in metrics:
            family = self._of_engines.get(metric.name)
            if family is None:
                family = self._of_engines[metric.name] = Metric(metric.name, metric.documentation, metric.type)
            family.samples.extend(metric.samples)

    def describe(self) -> Iterator[Metric]:
        """Yield the declared families without samples, for the collector interface of prometheus_client."""
        yield from (family.described() for family in self._declared.values())
        yield from self._of_engines.values()

    def collect(self) -> Iterator[Metric]:
        """Yield all families, for the collector interface of prometheus_client.

        Each is created on demand: the samples of a thousand models together would occupy the garbage collector, and so
        block every thread, for a third of a second.
        """
        yield from (family.metric() for family in self._declared.values())
        yield from self._of_engines.values()


def _shown(bound: float) -> str:
    return "+Inf" if bound == inf else str(bound)
