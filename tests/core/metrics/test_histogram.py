from math import inf

from lmi_core.metrics.histogram import Histogram


def test_values_count_up_to_their_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 7.0):
        histogram.add(value)
    assert histogram.cumulative() == [(1.0, 2), (2.0, 3), (inf, 4)]
    assert (histogram.count, histogram.total) == (4, 10.0)
