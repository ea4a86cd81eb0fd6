"""The usage of API keys, compared with their limits."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from lmi_core.admission.admission import num_sequences, too_many_sequences
from lmi_core.errors import RateLimited
from lmi_core.generation.request import GenerationRequest
from lmi_handlers.access.api_keys import REQUESTS, RUNNING, ApiKey, KeyLimits

SECONDS = 60.0  # per minute
SOON = 1.0  # seconds; a request may have ended by then


class KeyUsage:
    """The sequences of one key: the number in running requests, and the remaining ones, which refill up to a minute's
    limit.
    """

    __slots__ = ("_left", "_limits", "_running", "_since")

    def __init__(self) -> None:
        self._running = 0
        self._limits = KeyLimits()
        self._left = math.inf
        self._since = 0.0

    @contextmanager
    def one(self, key: ApiKey) -> Iterator["CountedRequest"]:
        """Count a request, at first as one sequence. Raise RateLimited beyond the key's limits."""
        self._refill(key.limits)
        self._take(key.name, 1)
        request = CountedRequest(self, key.name)
        try:
            yield request
        finally:
            self._running -= request.count

    def take_more(self, name: str, requests: Sequence[GenerationRequest]) -> int:
        """Count all sequences of a request of the named key except the first, and return their number.

        Raise RateLimited beyond the key's limits, or InvalidParameter for more than it may ever have.
        """
        count = num_sequences(requests)
        for limit, option in (
            (self._limits.max_concurrent_requests, RUNNING),
            (self._limits.requests_per_minute, REQUESTS),
        ):
            if limit is not None and count > limit:
                raise too_many_sequences(requests, limit, f"the {option} of the API key {name}")
        if count > 1:
            self._refill(self._limits)
            self._take(name, count, counted=1)
        return count - 1

    def _refill(self, limits: KeyLimits) -> None:
        rate, now = limits.requests_per_minute, time.monotonic()
        if limits.requests_per_minute != self._limits.requests_per_minute:  # a new key, or a changed file
            self._left = math.inf if rate is None else min(float(rate), self._left)
        elif rate is not None:
            self._left = min(float(rate), self._left + (now - self._since) * rate / SECONDS)
        self._limits, self._since = limits, now

    def _take(self, name: str, count: int, counted: int = 0) -> None:
        """Count the sequences of a request of the named key, except those already counted."""
        rate, most, more = self._limits.requests_per_minute, self._limits.max_concurrent_requests, count - counted
        several = "" if count == 1 else f", and the sequences of this one count as {count}"
        if rate is not None and self._left < more:
            wait = (count - self._left) * SECONDS / rate
            raise RateLimited(
                f"the API key {name} may start {rate} requests per minute{several}: try again in {wait:.1f} seconds",
                wait,
            )
        if most is not None and self._running + more > most:
            raise RateLimited(
                f"the API key {name} may have {most} requests at the same time{several}: try again when one has ended",
                SOON,
            )
        self._left -= more
        self._running += more

    def headers(self) -> dict[str, str]:
        """Return OpenAI's headers with the remaining limits."""
        rate = self._limits.requests_per_minute
        if rate is None:
            return {}
        return {
            "x-ratelimit-limit-requests": str(rate),
            "x-ratelimit-remaining-requests": str(math.floor(self._left)),
            "x-ratelimit-reset-requests": f"{(rate - self._left) * SECONDS / rate:.3f}s",
        }


class CountedRequest:
    """A running request in the usage of the named key; without one, it has no limits."""

    __slots__ = ("_name", "_usage", "count")

    def __init__(self, usage: KeyUsage | None = None, name: str = "") -> None:
        self.count = 1
        self._usage = usage
        self._name = name

    @property
    def headers(self) -> Mapping[str, str]:
        """OpenAI's headers with the remaining limits."""
        return {} if self._usage is None else self._usage.headers()

    def extend(self, requests: Sequence[GenerationRequest]) -> None:
        """Count each further sequence of the request.

        Raise RateLimited beyond the key's limits, or InvalidParameter for more than it may ever have.
        """
        if self._usage is not None:
            self.count += self._usage.take_more(self._name, requests)


UNLIMITED = CountedRequest()
