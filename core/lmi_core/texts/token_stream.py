"""Conversion of generated ids to tokens with final texts."""

from collections import deque
from collections.abc import Callable, Collection, Sequence, Set
from typing import NamedTuple

from lmi_core.generation.output import Token
from lmi_core.generation.tokenizer import Detokenizer


class Match(NamedTuple):
    """A complete stop sequence, with its offset from the end of the last piece; ordered by start."""

    offset: int
    length: int
    stop: Sequence[object]


class StopMatcher:
    """A search for several sequences of characters or token ids in linear time.

    Each sequence has a Knuth-Morris-Pratt automaton, whose borders are computed on demand.
    """

    def __init__(self, stops: Sequence[Sequence[object]]) -> None:
        self._stops = stops
        self._borders: list[list[int]] = [[0] for _ in stops]  # see `_border`
        self._matched: dict[int, int] = {}  # by stop index: how many items of the stop the text read so far ends with
        self._starts: dict[object, list[int]] = {}  # the indices of the stops that start with an item
        for index, stop in enumerate(stops):
            self._starts.setdefault(stop[0], []).append(index)

    @property
    def held_length(self) -> int:
        """The length of the longest suffix of the input that is an incomplete stop sequence."""
        return max(self._matched.values(), default=0)

    def read(self, piece: Sequence[object]) -> list[Match]:
        """Process the next piece, and return the matches that it completes."""
        if not self._matched and self._starts.keys().isdisjoint(piece):
            return []
        return [
            Match(end - len(piece) - len(self._stops[index]), len(self._stops[index]), self._stops[index])
            for end, item in enumerate(piece, start=1)
            for index in self._advance(item)
        ]

    def _advance(self, item: object) -> list[int]:
        """Process one item, and return the indices of the stop sequences that it completes."""
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
        """Return the length of the longest border of a stop sequence's first `length` items: both prefix and suffix."""
        stop, borders = self._stops[index], self._borders[index]
        for end in range(len(borders), length):
            border = borders[end - 1]
            while border and stop[border] != stop[end]:
                border = borders[border - 1]
            borders.append(border + (stop[border] == stop[end]))
        return borders[length - 1]


class TokenStream:
    """A converter of one sequence's ids, which holds back tokens that may start a stop sequence."""

    def __init__(
        self,
        detokenizer: Detokenizer,
        stop_sequences: Sequence[str] = (),
        special_ids: Set[int] = frozenset(),
        *,
        stop_token_sequences: Collection[Sequence[int]] = (),
        include_stop: bool = False,
        special_text: Callable[[int], str] | None = None,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        """Keep a stop sequence in the text if `include_stop`; without `special_text`, special tokens have no text."""
        self.stopped = False  # whether a stop sequence has ended the text
        self.stop_sequence: str | None = None  # the stop sequence that ended the text, if any
        self._detokenizer = detokenizer
        self._stops = bool(stop_sequences or stop_token_sequences)
        self._stop_texts = StopMatcher(stop_sequences)
        self._stop_ids = StopMatcher([tuple(ids) for ids in stop_token_sequences])
        self._include_stop = include_stop
        self._special_ids = special_ids
        self._special_text = special_text
        self._between_special = " " if spaces_between_special_tokens else ""
        self._after_special = False
        self._held: deque[Token] = deque()
        self._held_length = 0  # length of the held texts

    def push(
        self,
        token_id: int,
        log_prob: float | None = None,
        top_tokens: list[Token] | None = None,
        rank: int | None = None,
    ) -> list[Token]:
        """Process a generated id, and return the tokens that are final now, in order."""
        special = token_id in self._special_ids
        text = self._write_special(token_id) if special else self._detokenizer.step(token_id)
        self._after_special = special
        token = Token(token_id, text, log_prob, special, top_tokens, rank)
        if not self._stops:
            return [token]
        self._held.append(token)
        self._held_length += len(text)
        return self._settle(text, token_id)

    def push_all(self, token_ids: Sequence[int]) -> list[Token]:
        """Process generated ids, up to one that ends the sequence, and return the tokens that are final now, in
        order.
        """
        if not self._stops and self._special_ids.isdisjoint(token_ids):
            self._after_special = self._after_special and not token_ids
            step = self._detokenizer.step
            return [Token(token_id, step(token_id)) for token_id in token_ids]
        tokens: list[Token] = []
        for token_id in token_ids:
            tokens += self.push(token_id)
            if self.stopped:
                break
        return tokens

    def finish(self) -> list[Token]:
        """Return the tokens still held back, at the end of the sequence."""
        tokens = list(self._held)
        self._held.clear()
        self._held_length = 0
        return tokens

    def _write_special(self, token_id: int) -> str:
        text = "" if self._special_text is None else self._special_text(token_id)
        return self._between_special + text if text and self._after_special else text

    def _settle(self, text: str, token_id: int) -> list[Token]:
        found = self._stop_texts.read(text)
        if self._stops_by_text(found) or self._stops_by_tokens(self._stop_ids.read((token_id,))):
            self.stopped = True
            return self.finish()
        return self._release(self._stop_texts.held_length, 0 if self._include_stop else self._stop_ids.held_length)

    def _stops_by_text(self, found: list[Match]) -> bool:
        """Return whether a stop sequence of text is complete, truncating the text there."""
        if found:
            offset, length, stop = min(found)
            self.stop_sequence = str(stop)
            self._truncate(self._held_length + offset + (length if self._include_stop else 0))
        return bool(found)

    def _stops_by_tokens(self, found: list[Match]) -> bool:
        """Return whether a stop sequence of ids is complete, removing its tokens' text."""
        if found and not self._include_stop:
            for token in list(self._held)[-max(match.length for match in found) :]:
                token.text = ""
        return bool(found)

    def _truncate(self, length: int) -> None:
        for token in self._held:
            token.text = token.text[:length]
            length -= len(token.text)

    def _release(self, characters: int, tokens: int) -> list[Token]:
        """Return the held tokens that lie before the last `characters` and the last `tokens`."""
        released: list[Token] = []
        while len(self._held) > tokens and self._held_length - len(self._held[0].text) >= characters:
            released.append(self._held.popleft())
            self._held_length -= len(released[-1].text)
        return released
