"""The bounded queue of a model, with one place for each waiting or running sequence."""

import math
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Self

from lmi_core.errors import InvalidParameter, Overloaded
from lmi_core.generation.request import PROMPT, GenerationRequest
from lmi_core.payloads.exact_numbers import as_integer

NUMBERS_OF_SEQUENCES = ("n", "best_of", "num_beams")  # parameters
MOST_DEPARTURES = 64  # that are looked at, so that the rate is the current one
FEWEST_DEPARTURES = 4  # before which the rate is unknown
MAX_ADVICE = 60.0  # seconds: clients that are given a longer time do not wait


class SequenceCounts(NamedTuple):
    """The numbers of running and waiting sequences in a model's queue."""

    running: int
    waiting: int


class Admission:
    """The queue of a model. A call takes one place for each of its sequences."""

    def __init__(self, model: str, max_waiting: int, max_running: int = 0, queue_timeout: float = math.inf) -> None:
        """Create a queue in which `max_running` sequences run and `max_waiting` wait, for at most `queue_timeout`
        seconds each.
        """
        self.taken = 0
        self.resize(max_waiting, max_running)
        self._queue_timeout = queue_timeout
        self._departures = Departures()
        self._model = model

    def resize(self, max_waiting: int, max_running: int) -> None:
        """Change the numbers of places."""
        self.maximum = max_waiting + max_running
        self._max_running = max_running

    def check(self) -> None:
        """Raise Overloaded if every place is taken, or if a request could not start within its time limit."""
        if self.taken >= self.maximum:
            raise Overloaded(
                f"model {self._model} has {self.taken} requests in its queue, which is full", self._departures.advice()
            )
        excess = self.taken - self._max_running
        if self._queue_timeout == math.inf or excess < 0:
            return
        seconds = self._departures.seconds_for(excess + 1)
        if seconds is not None and seconds > self._queue_timeout:
            raise Overloaded(
                f"model {self._model} has {self.taken} requests in its queue: another one would begin in about "
                f"{seconds:.0f} seconds, after its option.queue_timeout={self._queue_timeout:g} seconds",
                self._departures.advice(int(excess * (1 - self._queue_timeout / seconds))),
            )

    def admit(self) -> "Ticket":
        """Take a place for a call. Raise Overloaded if there is none."""
        self.check()
        return Ticket(self)

    def take_more(self, requests: Sequence[GenerationRequest]) -> int:
        """Take places for all sequences of a call but the first, and return their number.

        Raise Overloaded if there are too few free places, or InvalidParameter if there are too few in all.
        """
        count = num_sequences(requests)
        if count > self.maximum:
            why = "have a place in the model's queue (job_queue_size, option.max_rolling_batch_size)"
            raise too_many_sequences(requests, self.maximum, why)
        others = self.taken - 1
        if others + count > self.maximum:
            raise Overloaded(
                f"model {self._model} has {others} other requests in its queue, which has no room for the {count} "
                "sequences of this one",
                self._departures.advice(others + count - self.maximum),
            )
        self.taken += count - 1
        return count - 1

    def release(self, count: int) -> None:
        """Free places."""
        self._departures.add(count, others_wait=self.taken > self._max_running)
        self.taken -= count


class Ticket:
    """The places of one call, freed at the end of a `with` statement."""

    __slots__ = ("_admission", "_count")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._count = 1
        admission.taken += 1

    def extend(self, requests: Sequence[GenerationRequest]) -> None:
        """Take a place for each further sequence of the call, before its prompts are tokenized.

        Raise Overloaded if there are too few free places, or InvalidParameter if there are too few in all.
        """
        self._count += self._admission.take_more(requests)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._admission.release(self._count)


class Departures:
    """The latest departures from a queue while other requests waited, which show how fast the queue moves."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MOST_DEPARTURES)
        self._promised = 0  # departures after which clients were asked to come back

    def add(self, count: int, *, others_wait: bool) -> None:
        """Record that this many places became free."""
        self._promised = max(0, self._promised - count)
        if not others_wait:
            self._times.clear()  # the pauses between requests say nothing about the engine
            return
        now = time.monotonic()
        for _ in range(min(count, MOST_DEPARTURES)):
            self._times.append(now)

    def seconds_for(self, count: int) -> float | None:
        """Estimate the seconds until that many more departures; None if unknown."""
        if len(self._times) < FEWEST_DEPARTURES:
            return None
        elapsed = time.monotonic() - self._times[0]
        return elapsed * count / (len(self._times) - 1)

    def advice(self, count: int = 0) -> float | None:
        """Return the seconds after which to retry, given the departures to wait for; each caller gets a later time."""
        self._promised += 1
        seconds = self.seconds_for(count + self._promised)
        return None if seconds is None else min(seconds, MAX_ADVICE)


def num_sequences(requests: Sequence[GenerationRequest]) -> int:
    """Return the number of sequences that the prompts of a call ask for; invalid numbers count as one."""
    return sum(map(_num_sequences, requests))


def too_many_sequences(requests: Sequence[GenerationRequest], most: int, why: str) -> InvalidParameter:
    """Return the error for a call with more than `most` sequences, which can never be admitted."""
    name = requests[0].names.get(PROMPT, PROMPT)
    return InvalidParameter(
        f"`{name}` must ask for at most {most} sequences at once, as many as {why}. Given: {num_sequences(requests)}"
    )


def _num_sequences(request: GenerationRequest) -> int:
    given = [as_integer(request.parameters.get(name)) for name in NUMBERS_OF_SEQUENCES]
    return max([1, *(number for number in given if isinstance(number, int))])
