"""Counts and durations of a model's calls."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

NANOSECONDS_PER_MILLISECOND = 1_000_000


@dataclass(slots=True)
class Durations:
    """The number of calls with one outcome, and their total duration."""

    count: int = 0
    nanoseconds: int = 0

    def add(self, nanoseconds: int) -> None:
        self.count += 1
        self.nanoseconds += nanoseconds


@dataclass(slots=True)
class MeasuredCall:
    """A call while it runs."""

    succeeds: bool = True  # unless it raises


@dataclass(slots=True)
class RequestStatistics:
    """The calls of a model since it was created, each measured from the start of its work."""

    succeeded: Durations = field(default_factory=Durations)
    failed: Durations = field(default_factory=Durations)  # includes aborted requests
    num_prompts: int = 0  # of successful calls, each of which may have several
    last_call: int = 0  # milliseconds since 1970; 0: no call yet

    @contextmanager
    def measure(self, num_prompts: int) -> Iterator[MeasuredCall]:
        """Count a call with that many prompts when it ends; a call that raises or is closed has failed."""
        self.last_call = time.time_ns() // NANOSECONDS_PER_MILLISECOND
        begun, call = time.perf_counter_ns(), MeasuredCall()
        try:
            yield call
        except BaseException:
            call.succeeds = False
            raise
        finally:
            (self.succeeded if call.succeeds else self.failed).add(time.perf_counter_ns() - begun)
            self.num_prompts += num_prompts if call.succeeds else 0
