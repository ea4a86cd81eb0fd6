"""Conversion of generated ids to tokens with final texts."""

from collections.abc import Callable, Collection, Sequence

from lmi_core.generation import Token
from lmi_core.tokenizer import Detokenizer


class TokenStream:
    """A converter of one sequence's ids, which holds back tokens that may begin a stop sequence."""

    def __init__(
        self,
        detokenizer: Detokenizer,
        stop_sequences: Sequence[str] = (),
        special_ids: Collection[int] = (),
        *,
        stop_token_sequences: Collection[Sequence[int]] = (),
        include_stop: bool = False,
        special_text: Callable[[int], str] | None = None,
        spaces_between_special_tokens: bool = True,
    ) -> None:
        """Keep a stop sequence in the text if `include_stop`; without `special_text`, special tokens have no text."""
        self.stopped = False  # ended by a stop sequence
        self.stop_sequence: str | None = None  # the one that ended it; None also for one of ids
        self._detokenizer = detokenizer
        self._stop_sequences = stop_sequences
        self._stop_ids = [list(ids) for ids in stop_token_sequences]
        self._include_stop = include_stop
        self._special_ids = special_ids
        self._special_text = special_text
        self._between_special = " " if spaces_between_special_tokens else ""
        self._after_special = False
        self._held: list[Token] = []
        self._max_stop_ids = max(map(len, self._stop_ids), default=0)
        self._latest_ids: list[int] = []  # the length of the longest of them

    def push(
        self,
        token_id: int,
        log_prob: float | None = None,
        top_tokens: list[Token] | None = None,
        rank: int | None = None,
    ) -> list[Token]:
        """Take a generated id, and return the tokens that are final now, in order."""
        special = token_id in self._special_ids
        text = self._write_special(token_id) if special else self._detokenizer.step(token_id)
        self._after_special = special
        token = Token(token_id, text, log_prob, special, top_tokens, rank)
        if not self._stop_sequences and not self._stop_ids:
            return [token]
        self._held.append(token)
        if self._max_stop_ids:
            self._latest_ids = [*self._latest_ids, token_id][-self._max_stop_ids :]
        return self._settle()

    def finish(self) -> list[Token]:
        """Return the tokens still held back, at the end of the sequence."""
        tokens, self._held = self._held, []
        return tokens

    def _write_special(self, token_id: int) -> str:
        text = "" if self._special_text is None else self._special_text(token_id)
        return self._between_special + text if text and self._after_special else text

    def _settle(self) -> list[Token]:
        text = "".join(token.text for token in self._held)
        if self._stops_by_text(text) or self._stops_by_tokens():
            self.stopped = True
            return self.finish()
        released = self._count_within(len(text) - self._longest_start_of_a_stop(text))
        return self._release(min(released, len(self._held) - self._longest_start_of_stop_ids()))

    def _stops_by_text(self, text: str) -> bool:
        """Return whether a stop sequence of text is complete, truncating the text there."""
        found = [(place, len(stop), stop) for stop in self._stop_sequences if (place := text.find(stop)) >= 0]
        if found:
            place, length, self.stop_sequence = min(found)
            self._cut(place + length if self._include_stop else place)
        return bool(found)

    def _stops_by_tokens(self) -> bool:
        """Return whether a stop sequence of ids is complete, removing its tokens' text."""
        lengths = [len(stop) for stop in self._stop_ids if self._latest_ids[-len(stop) :] == stop]
        if lengths and not self._include_stop:
            for token in self._held[-max(lengths) :]:
                token.text = ""
        return bool(lengths)

    def _cut(self, length: int) -> None:
        for token in self._held:
            token.text = token.text[:length]
            length -= len(token.text)

    def _count_within(self, length: int) -> int:
        """Return how many held tokens lie entirely within the first `length` characters."""
        for count, token in enumerate(self._held):
            length -= len(token.text)
            if length < 0:
                return count
        return len(self._held)

    def _release(self, count: int) -> list[Token]:
        tokens, self._held = self._held[:count], self._held[count:]
        return tokens

    def _longest_start_of_a_stop(self, text: str) -> int:
        """Return the length of the text's longest suffix that is a prefix of a stop sequence."""
        max_length = min(len(text), max(map(len, self._stop_sequences), default=0) - 1)
        for length in range(max_length, 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stop_sequences):
                return length
        return 0

    def _longest_start_of_stop_ids(self) -> int:
        """Return how many of the last tokens begin a stop sequence of ids that would remove their text."""
        if self._include_stop:
            return 0
        ids = [token.id for token in self._held]
        max_length = min(len(ids), self._max_stop_ids - 1)
        for length in range(max_length, 0, -1):
            if any(stop[:length] == ids[-length:] and len(stop) > length for stop in self._stop_ids):
                return length
        return 0
