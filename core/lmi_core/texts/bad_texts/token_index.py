"""An index of a vocabulary's tokens by their bytes."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    Ids = numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]]

SEPARATOR = b"\xff"  # a byte that never occurs in UTF-8
MAX_KEPT = 128  # cached lookups; a short text is in most tokens


class TokenIndex:
    """A lookup of tokens by a prefix or part of their bytes, without a scan; ids may have no bytes."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        """Index `token_bytes`, the bytes of each id in order."""
        self.token_bytes = token_bytes
        self.max_length = max(map(len, token_bytes), default=0)
        order = sorted(range(len(token_bytes)), key=token_bytes.__getitem__)
        order = order[token_bytes.count(b"") :]
        self._sorted = [token_bytes[i] for i in order]
        self._ids: Ids = numpy.array(order, dtype=numpy.int64)
        self._joined = numpy.frombuffer(SEPARATOR.join(self._sorted), dtype=numpy.uint8)
        self._counts = numpy.bincount(self._joined, minlength=256).tolist()  # number of occurrences of each byte
        lengths = numpy.fromiter(map(len, self._sorted), dtype=numpy.int64, count=len(order))
        self._ends: Ids = (lengths + len(SEPARATOR)).cumsum()  # in `_joined`, after each token's separator
        self.holding = lru_cache(MAX_KEPT)(self._holding)

    def of(self, token_id: int) -> bytes:
        """Return the token's bytes; b"" for an id beyond the vocabulary."""
        return self.token_bytes[token_id] if token_id < len(self.token_bytes) else b""

    def beginning_with(self, start: bytes) -> "Ids":
        """Return the ids of the tokens that start with these bytes."""
        after = start[:-1] + bytes([start[-1] + 1])  # the first bytes that sort after all of them
        return self._ids[bisect_left(self._sorted, start) : bisect_left(self._sorted, after)]

    def _holding(self, part: bytes) -> "Ids":
        """Return the ids of the tokens that contain these bytes."""
        if len(part) > self.max_length:
            return self._ids[:0]
        rarest = min(range(len(part)), key=lambda offset: self._counts[part[offset]])
        places = numpy.flatnonzero(self._joined == part[rarest]) - rarest
        places = places[(places >= 0) & (places <= len(self._joined) - len(part))]
        for offset, byte in enumerate(part):
            places = places[self._joined[places + offset] == byte]
        return self._ids[numpy.unique(self._ends.searchsorted(places, side="right"))]
