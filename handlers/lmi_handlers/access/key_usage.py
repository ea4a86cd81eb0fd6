"""The usage of API keys, compared with their limits."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Self

from lmi_core.admission.admission import num_sequences, too_many_sequences
from lmi_core.errors import ModelNotReady, Overloaded, RateLimited
from lmi_core.generation.request import GenerationRequest
from lmi_handlers.access.api_keys import REQUESTS, RUNNING, ApiKey, KeyLimits

SECONDS = 60.0  # per minute
SOON = 1.0  # seconds; a request may have ended by then
REFUSED = (ModelNotReady, Overloaded)  # by the server, for no fault of the client, before the request started


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

    def begin(self, key: ApiKey) -> None:
        """Count a request, at first as one sequence. Raise RateLimited beyond the key's limits."""
        self._refill(key.limits)
        self._take(key.name, 1)

    def end(self, count: int, *, refund: bool) -> None:
        """Stop counting a request with this many sequences as running, or at all."""
        self._running -= count
        if refund and (rate := self._limits.requests_per_minute) is not None:
            self._left = min(float(rate), self._left + count)

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
    """A request that is in the usage of a key during a `with` statement; without a key, it has no limits."""

    __slots__ = ("_count", "_key", "_usage")

    def __init__(self, usage: KeyUsage | None = None, key: ApiKey | None = None) -> None:
        self._count = 1
        self._usage = usage
        self._key = key

    def __enter__(self) -> Self:
        """Count the request. Raise RateLimited beyond the key's limits."""
        if self._usage is not None and self._key is not None:
            self._usage.begin(self._key)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._usage is not None:
            self._usage.end(self._count, refund=kind is not None and issubclass(kind, REFUSED))

    @property
    def headers(self) -> Mapping[str, str]:
        """OpenAI's headers with the remaining limits, also after a refusal."""
        return {} if self._usage is None else self._usage.headers()

    def extend(self, requests: Sequence[GenerationRequest]) -> None:
        """Count each further sequence of the request.

        Raise RateLimited beyond the key's limits, or InvalidParameter for more than it may ever have.
        """
        if self._usage is not None and self._key is not None:
            self._count += self._usage.take_more(self._key.name, requests)


UNLIMITED = CountedRequest()
