"""The usage of API keys, compared with their limits."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lmi_core.errors import RateLimited
from lmi_handlers.access.api_keys import ApiKey, KeyLimits

SECONDS = 60.0  # in a minute
SOON = 1.0  # seconds after which a request may have ended


class KeyUsage:
    """The requests of one key: the number of running ones, and the remaining ones, which refill up to a minute's
    limit.
    """

    __slots__ = ("_left", "_limits", "_running", "_since")

    def __init__(self) -> None:
        self._running = 0
        self._limits = KeyLimits()
        self._left = math.inf
        self._since = 0.0

    @contextmanager
    def one(self, key: ApiKey) -> Iterator[dict[str, str]]:
        """Count a request, and yield headers with the remaining limits. Raise RateLimited beyond the key's limits."""
        now = time.monotonic()
        self._refill(key.limits, now)
        self._check(key)
        self._left -= 1
        self._running += 1
        try:
            yield self._headers()
        finally:
            self._running -= 1

    def _refill(self, limits: KeyLimits, now: float) -> None:
        rate = limits.requests_per_minute
        if limits.requests_per_minute != self._limits.requests_per_minute:  # a new key, or the file has changed
            self._left = math.inf if rate is None else min(float(rate), self._left)
        elif rate is not None:
            self._left = min(float(rate), self._left + (now - self._since) * rate / SECONDS)
        self._limits, self._since = limits, now

    def _check(self, key: ApiKey) -> None:
        rate, most = key.limits.requests_per_minute, key.limits.max_concurrent_requests
        if rate is not None and self._left < 1:
            wait = (1 - self._left) * SECONDS / rate
            raise RateLimited(
                f"the API key {key.name} may begin {rate} requests per minute: try again in {wait:.1f} seconds", wait
            )
        if most is not None and self._running >= most:
            raise RateLimited(
                f"the API key {key.name} may have {most} requests at the same time: try again when one has ended", SOON
            )

    def _headers(self) -> dict[str, str]:
        """Return OpenAI's headers with the remaining limits."""
        rate = self._limits.requests_per_minute
        if rate is None:
            return {}
        return {
            "x-ratelimit-limit-requests": str(rate),
            "x-ratelimit-remaining-requests": str(math.floor(self._left)),
            "x-ratelimit-reset-requests": f"{(rate - self._left) * SECONDS / rate:.3f}s",
        }


class KeyUsages:
    """The usage of each key, by its holder, so that it survives reading the keys again."""

    def __init__(self) -> None:
        self._by_holder: dict[str, KeyUsage] = {}

    def of(self, key: ApiKey) -> KeyUsage:
        usage = self._by_holder.get(key.holder)
        if usage is None:
            usage = self._by_holder[key.holder] = KeyUsage()
        return usage
