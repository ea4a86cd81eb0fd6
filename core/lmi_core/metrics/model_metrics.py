"""The counts and times of the requests of the server and of each model."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from itertools import accumulate
from time import perf_counter
from typing import NamedTuple
from weakref import WeakSet

from lmi_core.generation.output import GenerationOutput
from lmi_core.metrics.recent_errors import RecentErrors
from lmi_core.metrics.request_record import RequestRecord

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5)
NANOSECONDS_PER_MILLISECOND = 1_000_000


class Histogram:
    """A histogram of values with ascending upper `bounds`."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one counts values above all bounds
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """Return each bound, infinity last, with the number of values up to it."""
        return list(zip((*self.bounds, float("inf")), accumulate(self.counts), strict=True))

    def without_bounds(self) -> "Histogram":
        """Return only the sum and the count."""
        found = Histogram(())
        found.counts, found.total = [self.count], self.total
        return found


OTHER = "other"  # the label used once there are too many
MAX_ADAPTERS = 100  # with their own labels
MAX_OUTCOMES = 1000
FAILED = 400  # this status and those above are errors
CLIENT_LEFT = 499  # the client disconnected before the answer; nginx uses this status too
LEFT = "client_left"  # its reason
ANSWERED = "answered"  # the reason of answers without a finish reason
SUCCESSES = frozenset({ANSWERED, "eos_token", "length", "stop_sequence"})
REJECTIONS = frozenset({"overloaded", "rate_limited", "model_not_ready", "backend_unhealthy"})
UNEXPECTED = "internal"
REFUSALS = ("overloaded", "model_not_ready")
ABORTS = frozenset({LEFT, "abort", "aborted", "generation_timeout"})


class Outcome(NamedTuple):
    """How requests of one adapter and dialect ended."""

    adapter: str
    dialect: str
    status: str
    reason: str  # a finish reason, or the kind of an error


class TokenCounts:
    """Numbers of tokens of one adapter's requests."""

    __slots__ = ("cached", "generated", "prompt")

    def __init__(self) -> None:
        self.prompt = 0
        self.generated = 0
        self.cached = 0

    def add(self, record: RequestRecord) -> None:
        """Add the tokens of a request, complete or so far."""
        self.prompt += record.prompt_tokens
        self.generated += record.tokens_so_far
        self.cached += record.cached_so_far


class ModelMetrics:
    """Counts of a model's requests, by a bounded number of labels."""

    def __init__(self) -> None:
        self.outcomes: dict[Outcome, int] = {}
        self.tokens: dict[str, TokenCounts] = {}  # of requests that have ended, by adapter
        self.queue_time = Histogram(SECONDS)
        self.time_to_first_token = Histogram(SECONDS)
        self.time_per_token = Histogram(TOKEN_SECONDS)
        self.end_to_end = Histogram(SECONDS)
        self.engine_time = 0.0  # seconds of all requests that succeeded
        self.server_time = 0.0
        self.running: WeakSet[RequestRecord] = WeakSet()  # requests whose output is still growing and not yet counted
        self.latest: RequestRecord | None = None  # the most recent one that succeeded
        self.latest_end_to_end = 0.0

    def begin(self, record: RequestRecord, output: GenerationOutput) -> None:
        """Track a request whose output starts, until `add` counts it."""
        record.output = output
        self._tokens_of(self._adapter(record.adapter))  # from now on its adapter has a name here, and keeps it
        self.running.add(record)

    def tokens_so_far(self) -> Mapping[str, TokenCounts]:
        """Return the tokens of each adapter so far, including running requests; the numbers never decrease.

        Call this only in the thread of the requests.
        """
        if not self.running:
            return dict(self.tokens)
        found = {adapter: copy(counts) for adapter, counts in self.tokens.items()}
        for record in self.running:
            if record.submitted is not None:
                found[self._adapter(record.adapter)].add(record)
        return found

    def add(self, record: RequestRecord, status: int, reason: str) -> float:
        """Count a request that has ended, and return how many seconds it took."""
        taken = perf_counter() - record.begun
        record.proceed()
        self.running.discard(record)
        adapter = self._adapter(record.adapter)
        self._count(Outcome(adapter, record.dialect, str(status), reason))
        if record.first_token is not None:
            self.time_to_first_token.add(record.first_token - record.begun)
        if record.submitted is not None:
            self._tokens_of(adapter).add(record)
        if status < FAILED and reason in SUCCESSES:  # a stream that fails after its start has the status 200
            self.latest, self.latest_end_to_end = record, taken
            queue_time, engine_time = record.queue_time, record.engine_time or 0.0
            time_per_token = record.time_per_token if record.num_sequences else None
            self.end_to_end.add(taken)
            self.queue_time.add(queue_time)
            self.engine_time += engine_time
            self.server_time += max(0.0, taken - engine_time - queue_time)
            if time_per_token is not None:
                self.time_per_token.add(time_per_token)
        return taken

    def _tokens_of(self, adapter: str) -> TokenCounts:
        counts = self.tokens.get(adapter)
        if counts is None:
            counts = self.tokens[adapter] = TokenCounts()
        return counts

    def _adapter(self, name: str) -> str:
        known = name in self.tokens or len(self.tokens) < MAX_ADAPTERS
        return name if known or not name else OTHER

    def _count(self, outcome: Outcome) -> None:
        count = self.outcomes.get(outcome, 0)
        if not count and len(self.outcomes) >= MAX_OUTCOMES:
            outcome = Outcome(OTHER, outcome.dialect, OTHER, OTHER)
            count = self.outcomes.get(outcome, 0)
        self.outcomes[outcome] = count + 1


class EndedRequest(NamedTuple):
    """A finished request, for further records about it."""

    record: RequestRecord
    path: str
    status: int
    reason: str
    seconds: float
    trace: Mapping[str, str] | None  # the headers of its trace


class ServerMetrics:
    """Counts of all requests, and of requests without a model."""

    def __init__(self) -> None:
        self.without_model = ModelMetrics()
        self.observers: list[Callable[[EndedRequest], None]] = []  # called when a request has ended
        self.errors = RecentErrors()
        self.statuses: dict[int, int] = {}  # number of responses by the first digit of the status
        self.unexpected = 0  # requests that failed with an unexpected error
        self.refused = 0  # requests that found the queue full or the model not ready

    def add(self, record: RequestRecord, status: int, reason: str, model: ModelMetrics | None) -> float:
        """Count a finished request, for its model too, and return its duration in seconds."""
        digit = status // 100
        self.statuses[digit] = self.statuses.get(digit, 0) + 1
        self.unexpected += reason == UNEXPECTED
        self.refused += reason in REFUSALS
        return (self.without_model if model is None else model).add(record, status, reason)


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
