"""The bounded queue of a model: a place for each request that waits or runs."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lmi_core.errors import InvalidParameter, Overloaded
from lmi_core.request import PROMPT, GenerationRequest
from lmi_core.serving.limits.departures import Departures

NUMBERS_OF_SEQUENCES = ("n", "best_of", "num_beams")  # parameters


class Places:
    """The places of a model's queue, of which a call takes one, and one more for each further sequence."""

    def __init__(self, model: str, maximum: int, max_running: int = 0, queue_timeout: float = math.inf) -> None:
        """Create a queue where all but `max_running` requests wait, each for `queue_timeout` seconds at most."""
        self.maximum = maximum
        self._max_running = max_running
        self._queue_timeout = queue_timeout
        self._departures = Departures()
        self._model = model
        self._taken = 0

    @property
    def taken(self) -> int:
        return self._taken

    def check(self) -> None:
        """Raise Overloaded where every place is taken, or a request surely could not begin within its time limit."""
        if self._taken >= self.maximum:
            raise Overloaded(
                f"model {self._model} has {self._taken} requests in its queue, which is full", self._departures.advice()
            )
        self._check_wait()

    def _check_wait(self) -> None:
        if self._queue_timeout == math.inf or self._taken < self._max_running:
            return
        seconds = self._departures.seconds_for(self._taken - self._max_running + 1)
        if seconds is not None and seconds > self._queue_timeout:
            excess = self._taken - self._max_running
            raise Overloaded(
                f"model {self._model} has {self._taken} requests in its queue: another one would begin in about "
                f"{seconds:.0f} seconds, after its option.queue_timeout={self._queue_timeout:g} seconds",
                self._departures.advice(int(excess * (1 - self._queue_timeout / seconds))),
            )

    @contextmanager
    def one(self) -> Iterator[None]:
        """Take a place for a call. Raise Overloaded where there is none."""
        self.check()
        with self._take(1):
            yield

    @contextmanager
    def for_sequences(self, requests: Sequence[GenerationRequest]) -> Iterator[None]:
        """Take places for all sequences of a call, which has one already, before its prompts are tokenized.

        Raise Overloaded where they do not fit now, or InvalidParameter where they never would.
        """
        count = sum(map(_num_sequences, requests))
        if count > self.maximum:
            name = requests[0].names.get(PROMPT, PROMPT)
            raise InvalidParameter(
                f"`{name}` must ask for at most {self.maximum} sequences at once, as many as have a place in the "
                f"model's queue (job_queue_size, option.max_rolling_batch_size). Given: {count}"
            )
        others = self._taken - 1
        if others + count > self.maximum:
            raise Overloaded(
                f"model {self._model} has {others} other requests in its queue, which has no room for the {count} "
                "sequences of this one",
                self._departures.advice(others + count - self.maximum),
            )
        with self._take(count - 1):
            yield

    @contextmanager
    def _take(self, count: int) -> Iterator[None]:
        self._taken += count
        try:
            yield
        finally:
            self._departures.add(count, others_wait=self._taken > self._max_running)
            self._taken -= count


def _num_sequences(request: GenerationRequest) -> int:
    """Return how many sequences a request asks for, which may be invalid."""
    given = [request.parameters.get(name) for name in NUMBERS_OF_SEQUENCES]
    return max([1, *(number for number in given if isinstance(number, int))])
