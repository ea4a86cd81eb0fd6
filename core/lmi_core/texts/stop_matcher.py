"""Search for stop sequences in what is generated, piece by piece."""

from collections.abc import Sequence
from typing import NamedTuple


class Match(NamedTuple):
    """A complete stop sequence, at its offset from the end of the last piece; ordered by where it begins."""

    offset: int
    length: int
    stop: Sequence[object]


class StopMatcher:
    """A search for several sequences, of characters or of token ids, whose time is linear in what it reads.

    Each sequence has a Knuth-Morris-Pratt automaton, whose borders are computed as far as the sequence has matched.
    """

    def __init__(self, stops: Sequence[Sequence[object]]) -> None:
        self._stops = stops
        self._borders: list[list[int]] = [[0] for _ in stops]  # see `_border`
        self._matched: dict[int, int] = {}  # how much of a stop, by its index, the end of what was read matches
        self._starts: dict[object, list[int]] = {}  # the indices of the stops that begin with an item
        for index, stop in enumerate(stops):
            self._starts.setdefault(stop[0], []).append(index)

    @property
    def held(self) -> int:
        """The length of the longest suffix of what was read that is an incomplete stop sequence."""
        return max(self._matched.values(), default=0)

    def read(self, piece: Sequence[object]) -> list[Match]:
        """Read the next piece, and return the matches that it completes."""
        if not self._matched and self._starts.keys().isdisjoint(piece):
            return []
        return [
            Match(end - len(piece) - len(self._stops[index]), len(self._stops[index]), self._stops[index])
            for end, item in enumerate(piece, start=1)
            for index in self._advance(item)
        ]

    def _advance(self, item: object) -> list[int]:
        """Read one item, and return the indices of the stop sequences that it completes."""
        starting = self._starts.get(item, ())
        if not self._matched and not starting:
            return []
        previous, self._matched, complete = self._matched, {}, list[int]()
        for index in {**previous, **dict.fromkeys(starting)}:
            matched = self._next(index, previous.get(index, 0), item)
            if matched == len(self._stops[index]):
                complete.append(index)
                matched = self._border(index, matched)
            if matched:
                self._matched[index] = matched
        return complete

    def _next(self, index: int, matched: int, item: object) -> int:
        stop = self._stops[index]
        while matched and stop[matched] != item:
            matched = self._border(index, matched)
        return matched + 1 if stop[matched] == item else 0

    def _border(self, index: int, length: int) -> int:
        """Return the length of the longest border of a stop sequence's first `length` items: a beginning and end."""
        stop, borders = self._stops[index], self._borders[index]
        for end in range(len(borders), length):
            border = borders[end - 1]
            while border and stop[border] != stop[end]:
                border = borders[border - 1]
            borders.append(border + (stop[border] == stop[end]))
        return borders[length - 1]
