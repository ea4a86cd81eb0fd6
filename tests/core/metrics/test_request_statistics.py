from contextlib import suppress

import pytest

from lmi_core.metrics.request_statistics import RequestStatistics


def test_success() -> None:
    statistics = RequestStatistics()
    with statistics.measure(3):
        assert statistics.num_prompts == 0
    assert (statistics.num_prompts, statistics.succeeded.count, statistics.failed.count) == (3, 1, 0)
    assert statistics.succeeded.nanoseconds > 0
    assert statistics.last_call > 0


@pytest.mark.parametrize("error", [ValueError, GeneratorExit])
def test_failure(error: type[BaseException]) -> None:
    statistics = RequestStatistics()
    with suppress(error), statistics.measure(3):
        raise error
    assert (statistics.num_prompts, statistics.succeeded.count, statistics.failed.count) == (0, 0, 1)


def test_a_call_that_ends_without_success() -> None:
    statistics = RequestStatistics()
    with statistics.measure(1) as call:
        call.succeeds = False
    assert (statistics.num_prompts, statistics.succeeded.count, statistics.failed.count) == (0, 0, 1)
