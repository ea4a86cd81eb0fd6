from contextlib import suppress
from math import inf
from time import perf_counter

import pytest

from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.generation.request import ValidRequest
from lmi_core.metrics.model_metrics import (
    MAX_ADAPTERS,
    MAX_OUTCOMES,
    OTHER,
    Histogram,
    ModelMetrics,
    Outcome,
    RequestStatistics,
)
from lmi_core.metrics.request_record import RequestRecord


def record(adapter: str = "", dialect: str = "lmi") -> RequestRecord:
    """Return the record of a request of 5 prompt tokens and 11 generated ones, 0.1 seconds apart."""
    made = RequestRecord(dialect, "id")
    made.begun = perf_counter() - 3.0
    made.server_queue_time, made.engine_queue_time = 0.25, 0.25
    made.submitted, made.first_token = made.begun + 0.5, made.begun + 1.0
    made.ended = made.first_token + 1.0
    made.adapter, made.prompt_tokens, made.generated_tokens, made.num_sequences = adapter, 5, 11, 1
    return made


def test_the_times_of_a_request() -> None:
    metrics = ModelMetrics()
    taken = metrics.add(record(), 200, "length")
    assert 3.0 <= taken < 60
    assert round(metrics.queue_time.total, 6) == 0.5
    assert round(metrics.time_to_first_token.total, 6) == 1.0
    assert round(metrics.time_per_token.total, 6) == 0.1
    assert round(metrics.engine_time, 6) == 1.25
    assert round(metrics.server_time - (taken - 1.75), 6) == 0
    assert metrics.outcomes == {Outcome("", "lmi", "200", "length"): 1}


@pytest.mark.parametrize(("status", "reason"), [(499, "client_left"), (200, "generation_failed"), (200, "abort")])
def test_a_request_that_failed_has_tokens_and_no_times(status: int, reason: str) -> None:
    metrics = ModelMetrics()
    metrics.add(record(), status, reason)
    assert metrics.end_to_end.count == metrics.engine_time == 0
    assert metrics.time_to_first_token.count == 1
    assert (metrics.tokens[""].prompt, metrics.tokens[""].generated) == (5, 11)


def test_a_request_that_never_reached_the_engine_counts_no_tokens() -> None:
    metrics = ModelMetrics()
    metrics.add(RequestRecord("lmi", "id"), 503, "overloaded")
    assert not metrics.tokens
    assert metrics.outcomes == {Outcome("", "lmi", "503", "overloaded"): 1}


def test_a_text_of_one_token_has_no_time_between_tokens() -> None:
    single = record()
    single.generated_tokens = 1
    assert single.time_per_token is None


def test_adapters_without_end_share_one_label() -> None:
    metrics = ModelMetrics()
    for number in range(3 * MAX_ADAPTERS):
        metrics.add(record(f"adapter {number}"), 200, "length")
    metrics.add(record(), 200, "length")
    assert len(metrics.tokens) <= MAX_ADAPTERS + 2
    assert metrics.tokens[OTHER].prompt == 5 * 2 * MAX_ADAPTERS
    assert metrics.tokens[""].prompt == 5
    assert sum(metrics.outcomes.values()) == 3 * MAX_ADAPTERS + 1


def test_no_count_becomes_less_when_a_request_ends() -> None:
    metrics = ModelMetrics()
    running = [record(f"adapter {number}") for number in range(2 * MAX_ADAPTERS)]
    for each in running:
        metrics.begin(each, GenerationOutput([ValidRequest("a", "a", [1], GenerationParameters())]))
        each.output = None  # as when it has generated what it says
    before = metrics.tokens_so_far()
    assert before[OTHER].generated == 11 * MAX_ADAPTERS
    for each in reversed(running):
        metrics.add(each, 200, "length")
        after = metrics.tokens_so_far()
        assert after.keys() == before.keys()
        assert all(after[adapter].generated == before[adapter].generated for adapter in before)


def test_outcomes_without_end_share_one_label() -> None:
    metrics = ModelMetrics()
    for number in range(3 * MAX_OUTCOMES):
        metrics.add(RequestRecord("lmi", "id"), number, "reason")
    assert len(metrics.outcomes) == MAX_OUTCOMES + 1
    assert metrics.outcomes[Outcome(OTHER, "lmi", OTHER, OTHER)] == 2 * MAX_OUTCOMES
    metrics.add(RequestRecord("lmi", "id"), 7, "reason")
    assert metrics.outcomes[Outcome("", "lmi", "7", "reason")] == 2


def test_values_count_up_to_their_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 7.0):
        histogram.add(value)
    assert histogram.cumulative() == [(1.0, 2), (2.0, 3), (inf, 4)]
    assert (histogram.count, histogram.total) == (4, 10.0)


def test_a_call_that_succeeds() -> None:
    statistics = RequestStatistics()
    with statistics.measure(3):
        assert statistics.num_prompts == 0
    assert (statistics.num_prompts, statistics.succeeded.count, statistics.failed.count) == (3, 1, 0)
    assert statistics.succeeded.nanoseconds > 0
    assert statistics.last_call > 0


@pytest.mark.parametrize("error", [ValueError, GeneratorExit])
def test_a_call_that_fails(error: type[BaseException]) -> None:
    statistics = RequestStatistics()
    with suppress(error), statistics.measure(3):
        raise error
    assert (statistics.num_prompts, statistics.succeeded.count, statistics.failed.count) == (0, 0, 1)


def test_a_call_that_ends_without_success() -> None:
    statistics = RequestStatistics()
    with statistics.measure(1) as call:
        call.succeeds = False
    assert (statistics.num_prompts, statistics.succeeded.count, statistics.failed.count) == (0, 0, 1)
