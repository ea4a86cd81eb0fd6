"""The calls of a model, and its bounded queue, with one place for each waiting or running sequence."""

import asyncio
import heapq
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Self

from lmi_core.errors import InvalidParameter, Overloaded
from lmi_core.generation.request import PROMPT, GenerationRequest
from lmi_core.payloads.tolerant_payload import as_integer

NUMBERS_OF_SEQUENCES = ("n", "best_of", "num_beams")  # parameters that set a number of sequences
RESERVED = 10  # one in this many waiting places, or tokens, is reserved for other keys
MOST_DEPARTURES = 64  # the most recent departures, from which the current rate is computed
FEWEST_DEPARTURES = 4  # with fewer departures, the rate is unknown
MAX_ADVICE = 60.0  # seconds; clients that are asked to wait longer do not wait
MAX_GUESS = 5.0  # seconds, while the rate is unknown: a place may become free at any time

# The holder of the API key for which the current task takes places; None if no other key shares the queues.
current_key: ContextVar[str | None] = ContextVar("current_key", default=None)


class Usage:
    """A count of a model's calls, from their admission to their end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.calls = 0
        self.last = clock()  # when a call last began or ended; initially, when the model was added
        self._clock = clock
        self._unused = asyncio.Event()
        self._unused.set()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call until it ends."""
        self.calls += 1
        self._unused.clear()
        self.last = self._clock()
        try:
            yield
        finally:
            self.calls -= 1
            self.last = self._clock()
            if self.calls == 0:
                self._unused.set()

    @property
    def unused_seconds(self) -> float:
        """The seconds since the end of the last call; 0 during calls."""
        return 0.0 if self.calls else self._clock() - self.last

    async def wait_unused(self) -> None:
        """Wait until no call is left."""
        await self._unused.wait()


class SequenceCounts(NamedTuple):
    """The numbers of running and waiting sequences in a model's queue."""

    running: int
    waiting: int


class Admission:
    """The queue of a model. A call takes one place per sequence.

    A key must leave places for other keys: the reserve, or as many as it already has if these are fewer.
    """

    def __init__(self, model: str, max_waiting: int, max_running: int = 0, queue_timeout: float = math.inf) -> None:
        """Create a queue in which `max_running` sequences run and `max_waiting` wait, for at most `queue_timeout`
        seconds each.
        """
        self.taken = 0
        self._by_key = Counter[str | None]()
        self._departures = Departures()
        self.resize(max_waiting, max_running)
        self._queue_timeout = queue_timeout
        self._model = model

    def resize(self, max_waiting: int, max_running: int) -> None:
        """Change the numbers of places."""
        self.maximum = max_waiting + max_running
        self._max_running = max_running
        self._reserve = reserve(max_waiting)
        self._departures.set_load(self.taken, max_running)

    def check(self) -> None:
        """Raise Overloaded if all places are taken or reserved for other keys, or a request would start too late."""
        if self.taken >= self.maximum:
            raise Overloaded(
                f"model {self._model} has {self.taken} requests in its queue, which is full", self._advice()
            )
        key = current_key.get()
        if key is not None:
            self._check_share(key, 1)
        if self._queue_timeout == math.inf or self.taken < self._max_running:
            return
        excess = self._waiting_ahead(key)
        seconds = self._departures.seconds_for(excess + 1)
        if seconds is not None and seconds > self._queue_timeout:
            raise Overloaded(
                f"model {self._model} has {self.taken} requests in its queue: another one would begin in about "
                f"{seconds:.0f} seconds, after its option.queue_timeout={self._queue_timeout:g} seconds",
                self._advice(int(excess * (1 - self._queue_timeout / seconds))),
            )

    def _waiting_ahead(self, key: str | None) -> int:
        """Return how many places will become free before a new request begins; keys take turns."""
        waiting = self.taken - self._max_running
        if key is None:
            return waiting
        own = self._by_key[key]
        return min(waiting, sum(min(count, own + 1) for count in self._by_key.values()))

    def _advice(self, departures: int = 0) -> float:
        """Return the seconds after which a refused client should retry, once there were this many departures."""
        return self._departures.advice(departures, self.maximum)

    def _check_share(self, key: str, count: int) -> None:
        """Raise Overloaded if this many more places for a key would leave too few for other keys."""
        own = self._by_key[key]
        kept = min(self._reserve, own + count - 1)
        lacking = self.taken + count + kept - self.maximum
        if lacking > 0:
            raise Overloaded(
                f"this key has {own} of the {self.maximum} places in the queue of model {self._model}: {count} more "
                f"would leave fewer than the {kept} reserved for other keys",
                self._advice(lacking),
            )

    def admit(self) -> "Ticket":
        """Take a place for a call. Raise Overloaded if there is none."""
        self.check()
        key = current_key.get()
        self._take(key, 1)
        return Ticket(self, key)

    def take_more(self, key: str | None, requests: Sequence[GenerationRequest]) -> int:
        """Take places of a key for all sequences of a call except the first, and return their number.

        Raise Overloaded if there are too few free places, or InvalidParameter if there are too few in all.
        """
        count = num_sequences(requests)
        kept = self._reserve if key is not None else 0
        if count > self.maximum - kept:
            why = "have a place in the model's queue (job_queue_size, option.max_rolling_batch_size)"
            if kept:
                why += f" beside the {kept} places reserved for other keys"
            raise too_many_sequences(requests, self.maximum - kept, why)
        others = self.taken - 1
        if others + count > self.maximum:
            raise Overloaded(
                f"model {self._model} has {others} other requests in its queue, which has no room for the {count} "
                "sequences of this one",
                self._advice(others + count - self.maximum),
            )
        if count > 1:
            if key is not None:
                self._check_share(key, count - 1)
            self._take(key, count - 1)
        return count - 1

    def _take(self, key: str | None, count: int) -> None:
        self.taken += count
        self._by_key[key] += count
        self._departures.set_load(self.taken, self._max_running)

    def release(self, key: str | None, count: int) -> None:
        """Free places of a key."""
        self._departures.add(count)
        self._take(key, -count)
        if not self._by_key[key]:
            del self._by_key[key]


class Ticket:
    """The places of one call, freed at the end of a `with` statement."""

    __slots__ = ("_admission", "_count", "_key")

    def __init__(self, admission: Admission, key: str | None) -> None:
        self._admission = admission
        self._count = 1
        self._key = key

    def extend(self, requests: Sequence[GenerationRequest]) -> None:
        """Take a place for each further sequence of the call, before its prompts are tokenized.

        Raise Overloaded if there are too few free places, or InvalidParameter if there are too few in all.
        """
        self._count += self._admission.take_more(self._key, requests)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admission.release(self._key, self._count)


class Departures:
    """The latest departures from a queue, which show how fast it moves when full, and the clients that it refused.

    Departures are timed by a clock that runs at half speed while half as many requests are there as can run, and stops
    without any: pauses between requests say nothing about the engine's speed.
    """

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MOST_DEPARTURES)
        self._elapsed, self._since, self._speed = 0.0, time.monotonic(), 0.0  # the clock, when last set
        self._returns: list[float] = []  # a heap of the times at which refused clients are to come back

    def set_load(self, taken: int, max_running: int) -> None:
        """Record that this many places are taken, and that this many requests can run."""
        self._elapsed, self._since = self._clock(), time.monotonic()
        self._speed = min(1.0, taken / max(max_running, 1))

    def add(self, count: int) -> None:
        """Record that this many places became free."""
        now = self._clock()
        for _ in range(min(count, MOST_DEPARTURES)):
            self._times.append(now)

    def seconds_for(self, count: int) -> float | None:
        """Estimate the seconds until this many more departures from a full queue; None if unknown."""
        if len(self._times) < FEWEST_DEPARTURES:
            return None
        return (self._clock() - self._times[0]) * count / (len(self._times) - 1)

    def advice(self, count: int, places: int) -> float:
        """Return the seconds after which to retry, given the departures to wait for.

        Each caller gets a later time until those before it come back. While the rate is unknown, guess that all places
        become free within a second.
        """
        now = time.monotonic()
        while self._returns and self._returns[0] <= now:
            heapq.heappop(self._returns)
        departures = count + len(self._returns) + 1
        seconds = self.seconds_for(departures)
        if seconds is None:
            seconds = min(departures / max(places, 1), MAX_GUESS)
        seconds = min(seconds, MAX_ADVICE)
        if seconds < MAX_ADVICE:  # further clients get no later time
            heapq.heappush(self._returns, now + seconds)
        return seconds

    def _clock(self) -> float:
        return self._elapsed + (time.monotonic() - self._since) * self._speed


def reserve(waiting: int) -> int:
    """Return how many of the waiting places, or tokens, a key leaves for other keys."""
    return min(waiting // 2, math.ceil(waiting / RESERVED))


def num_sequences(requests: Sequence[GenerationRequest]) -> int:
    """Return the number of sequences that the prompts of a call request; invalid numbers count as one."""
    return sum(map(_num_sequences, requests))


def too_many_sequences(requests: Sequence[GenerationRequest], most: int, why: str) -> InvalidParameter:
    """Return the error for a call with more than `most` sequences, which can never be admitted."""
    name = requests[0].names.get(PROMPT, PROMPT)
    return InvalidParameter(
        f"`{name}` must ask for at most {most} sequences at once, as many as {why}. Given: {num_sequences(requests)}"
    )


def _num_sequences(request: GenerationRequest) -> int:
    largest, parameters = 1, request.parameters
    for name in NUMBERS_OF_SEQUENCES:
        if name in parameters and isinstance(number := as_integer(parameters[name]), int):
            largest = max(largest, number)
    return largest
