"""Families of metrics, of which each has its samples only while it is written."""

from weakref import ref

from lmi_core.metrics.model_metrics import Histogram
from lmi_handlers.metrics import declared
from lmi_handlers.metrics.families import Families


def test_samples_die_once_they_are_written() -> None:
    families = Families()
    histogram = Histogram((1.0, 2.0))
    histogram.add(1.5)
    families.add(declared.QUEUE_TIME, histogram, "m", "")
    families.add(declared.READY, 1, "m", "")
    found = families.collect()
    first = next(found)
    values = [(sample.name.removeprefix(first.name), sample.labels.get("le"), sample.value) for sample in first.samples]
    assert values == [
        ("_bucket", "1.0", 0),
        ("_bucket", "2.0", 1),
        ("_bucket", "+Inf", 1),
        ("_count", None, 1),
        ("_sum", None, 1.5),
    ]
    written = ref(first)
    del first
    assert next(found).name == "lmi_model_ready"
    assert written() is None


def test_names_are_told_without_samples() -> None:
    families = Families()
    families.add(declared.READY, 1, "m", "")
    assert [(metric.name, metric.type, metric.samples) for metric in families.describe()] == [
        ("lmi_model_ready", "gauge", [])
    ]
