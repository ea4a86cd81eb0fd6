"""The finished sequences of a beam search, ranked as transformers ranks them."""

from ctypes import c_float
from typing import Generic, Literal, TypeVar

T = TypeVar("T")


class Hypotheses(Generic[T]):
    """The best finished sequences so far, at most as many as there are beams."""

    def __init__(
        self, num_beams: int, length_penalty: float, early_stopping: bool | Literal["never"], max_length: int
    ) -> None:
        """Rank sequences of at most `max_length` tokens."""
        self._num_beams = num_beams
        self._length_penalty = length_penalty
        self._early_stopping = early_stopping
        self._max_length = max_length
        self._ranked: list[tuple[float, T]] = []

    @property
    def best(self) -> list[T]:
        """Return the hypotheses, best first."""
        return [hypothesis for _, hypothesis in self._ranked]

    def add(self, hypothesis: T, score: float, length: int) -> None:
        """Add a finished sequence; `score` is the sum of its tokens' log probs."""
        ranked = [*self._ranked, (self._normalize(score, length), hypothesis)]
        self._ranked = sorted(ranked, key=lambda item: -item[0])[: self._num_beams]

    def may_improve(self, score: float, length: int) -> bool:
        """Return whether an unfinished beam of this score and length could still beat a finished one."""
        if len(self._ranked) < self._num_beams:
            return True
        if self._early_stopping is True:
            return False
        if self._early_stopping == "never" and self._length_penalty > 0:
            length = self._max_length
        return self._normalize(score, length) > self._ranked[-1][0]

    def _normalize(self, score: float, length: int) -> float:
        # Computed in float32, like transformers, so that scores that are equal there are equal here.
        return c_float(score / c_float(length**self._length_penalty).value).value
