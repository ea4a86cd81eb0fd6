"""Families of metrics, which are written as prometheus_client writes them, in a fraction of its time."""

import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_open_metrics

from lmi_core.metrics.model_metrics import SECONDS, Histogram
from lmi_handlers.metrics import declared
from lmi_handlers.metrics.families import Families

MODELS = [f"model {number}" for number in range(200)]
ODD = 'quoted "\\name\n'


def histogram(*values: float) -> Histogram:
    made = Histogram(SECONDS)
    for value in values:
        made.add(value)
    return made


def own(names: list[str], waits: Histogram, selected: tuple[str, ...] = ()) -> Families:
    families = Families(selected)
    for name in names:
        families.add(declared.QUEUE_TIME, waits, name, "2")
        families.add(declared.RESTARTS, 3, name, "2")
        families.add(declared.CACHE_USAGE, 0.25, name, "2")
    return families


class Theirs:
    """The same families, as prometheus_client makes them."""

    def __init__(self, names: list[str], waits: Histogram) -> None:
        self.names, self.waits = names, waits

    def collect(self) -> Iterator[Metric]:
        waits, restarts, usage = declared.QUEUE_TIME, declared.RESTARTS, declared.CACHE_USAGE
        times = HistogramMetricFamily(waits.name, waits.help, labels=waits.labels)
        counter = CounterMetricFamily(restarts.name, restarts.help, labels=restarts.labels)
        gauge = GaugeMetricFamily(usage.name, usage.help, labels=usage.labels)
        buckets = [(str(bound), float(count)) for bound, count in self.waits.cumulative()[:-1]]
        buckets.append(("+Inf", float(self.waits.count)))
        for name in self.names:
            times.add_metric((name, "2"), buckets, self.waits.total)
            counter.add_metric((name, "2"), 3.0)
            gauge.add_metric((name, "2"), 0.25)
        return iter((times, counter, gauge))


def generated(collector: Theirs, *, open_metrics: bool = False) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return (generate_open_metrics if open_metrics else generate_latest)(registry).decode()


def lines(text: str) -> list[str]:
    """Return the lines with their labels in alphabetic order, and their numbers as floating-point numbers."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{")
            labels, _, number = rest.rpartition("} ")
            line = f"{name} {sorted(labels.split(','))} {float(number)}"
        found.append(line)
    return found


@pytest.mark.parametrize("open_metrics", [False, True])
def test_the_text_is_prometheus_client_s(open_metrics: bool) -> None:
    waits = histogram(0.0015, 0.75, 0.75, 1000.0)
    theirs = generated(Theirs(["plain", ODD], waits), open_metrics=open_metrics)
    assert lines(own(["plain", ODD], waits).text(open_metrics=open_metrics)) == [
        line for line in lines(theirs) if line != "# EOF"
    ]


def test_it_takes_a_fraction_of_the_time() -> None:
    waits, took = histogram(*SECONDS), []
    for _ in range(3):
        begun = time.thread_time()
        own(MODELS, waits).text(open_metrics=False)
        between = time.thread_time()
        generated(Theirs(MODELS, waits))
        took.append((between - begun, time.thread_time() - between))
    assert 2 * min(mine for mine, _ in took) < min(theirs for _, theirs in took)


def test_empty_labels_are_left_out() -> None:
    families = Families()
    families.add(declared.READY, 1, "m", "")
    families.add(declared.PROMPT_TOKENS, 7, "", "", "")
    text = families.text(open_metrics=False)
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'lmi_model_ready{model="m"} 1',
        "lmi_prompt_tokens_total 7",
    ]


def test_a_selection_of_samples() -> None:
    families = own(["m"], histogram(1.0), ("lmi_queue_time_seconds_sum", "lmi_cache_usage_ratio"))
    text = families.text(open_metrics=False)
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'lmi_queue_time_seconds_sum{model="m",version="2"} 1.0',
        'lmi_cache_usage_ratio{model="m",version="2"} 0.25',
    ]


def test_a_histogram_without_its_bounds() -> None:
    assert histogram(0.5, 1.5).without_bounds().cumulative() == [(float("inf"), 2)]
    assert histogram(0.5, 1.5).without_bounds().total == 2.0
