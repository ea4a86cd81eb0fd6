"""A vocabulary's tokens by the bytes that they stand for."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy

if TYPE_CHECKING:
    Ids = numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]]

SEPARATOR = b"\xff"  # no text has this byte
MAX_KEPT = 128  # answers, for requests that ask for the same: a short text is in most tokens


class TokenIndex:
    """Finds the tokens that begin with some bytes, or hold them, without a look at each. Ids may stand for nothing."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        """`token_bytes`: of every id."""
        self.token_bytes = token_bytes
        self.max_length = max(map(len, token_bytes), default=0)
        order = sorted(range(len(token_bytes)), key=token_bytes.__getitem__)
        order = order[token_bytes.count(b"") :]
        self._sorted = [token_bytes[i] for i in order]
        self._ids: Ids = numpy.array(order, dtype=numpy.int64)
        self._joined = numpy.frombuffer(SEPARATOR.join(self._sorted), dtype=numpy.uint8)
        self._counts = numpy.bincount(self._joined, minlength=256).tolist()  # of each byte
        lengths = numpy.fromiter(map(len, self._sorted), dtype=numpy.int64, count=len(order))
        self._ends: Ids = (lengths + len(SEPARATOR)).cumsum()  # in `_joined`, each with the separator behind it
        self.holding = lru_cache(MAX_KEPT)(self._holding)

    def of(self, token_id: int) -> bytes:
        """What the token stands for; nothing for an id beyond the vocabulary."""
        return self.token_bytes[token_id] if token_id < len(self.token_bytes) else b""

    def beginning_with(self, start: bytes) -> "Ids":
        """The ids of the tokens that begin with these bytes of a text."""
        after = start[:-1] + bytes([start[-1] + 1])  # the first bytes that sort behind all of them
        return self._ids[bisect_left(self._sorted, start) : bisect_left(self._sorted, after)]

    def _holding(self, part: bytes) -> "Ids":
        """The ids of the tokens that hold these bytes of a text."""
        if len(part) > self.max_length:
            return self._ids[:0]
        rarest = min(range(len(part)), key=lambda offset: self._counts[part[offset]])
        places = numpy.flatnonzero(self._joined == part[rarest]) - rarest
        places = places[(places >= 0) & (places <= len(self._joined) - len(part))]
        for offset, byte in enumerate(part):
            places = places[self._joined[places + offset] == byte]
        return self._ids[numpy.unique(self._ends.searchsorted(places, side="right"))]
