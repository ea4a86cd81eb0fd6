"""A limit on the reasoning tokens of an answer, in token ids."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Marker = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class ReasoningBudget(BaseModel):
    """The maximum number of reasoning tokens, and the token ids of the markers around the reasoning."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tokens: int = Field(ge=0, description="The maximum number of reasoning tokens, without the markers.")
    starts: list[Marker] = Field(
        default=[], description="Markers that begin the reasoning, each as a list of token ids."
    )
    ends: list[Marker] = Field(
        min_length=1,
        description="Markers that end the reasoning, each as a list of token ids; at the limit, the first is inserted.",
    )
    inside: bool = Field(False, description="Whether the prompt already begins the reasoning.")


class ReasoningCountdown:
    """A counter of one sequence's reasoning tokens, which forces the end marker at the limit."""

    def __init__(self, budget: ReasoningBudget) -> None:
        self._budget = budget
        self._restart()

    def _restart(self) -> None:
        budget = self._budget
        self._inside = budget.inside
        self._repeats = budget.inside  # whether the model may repeat the marker that the prompt ends with
        self._ended = False
        self._num_read = 0
        self._begin = 0  # index of the first token of the reasoning

    def forced_token(self, generated: Sequence[int]) -> int | None:
        """Return the token id that must come next, or None if any may."""
        if len(generated) < self._num_read:  # generated tokens were rolled back
            self._restart()
        for num_read in range(self._num_read + 1, len(generated) + 1):
            if not self._ended:
                self._read(generated, num_read)
        self._num_read = len(generated)
        if self._ended or not self._inside or len(generated) - self._begin < self._budget.tokens:
            return None
        end = self._budget.ends[0]
        return end[_length_of_start(end, generated[self._begin :])]

    def _read(self, generated: Sequence[int], end: int) -> None:
        """Update the count for the token at index `end - 1`."""
        if _ends_with(generated, end, self._budget.ends, self._begin):
            self._ended = True
        elif (not self._inside or self._repeats) and (start := _ends_with(generated, end, self._budget.starts, 0)):
            if not self._inside or start == end:  # the model repeats the prompt's marker at the start of the answer
                self._begin = end
            self._inside = True
            self._repeats = False


def _ends_with(ids: Sequence[int], end: int, markers: Sequence[Sequence[int]], begin: int) -> int:
    """Return the length of the marker that ends `ids[begin:end]`, or 0."""
    for marker in markers:
        if end - begin >= len(marker) and list(ids[end - len(marker) : end]) == list(marker):
            return len(marker)
    return 0


def _length_of_start(marker: Sequence[int], ids: Sequence[int]) -> int:
    """Return the length of the longest proper prefix of the marker at the end of the ids."""
    for length in range(min(len(marker) - 1, len(ids)), 0, -1):
        if list(ids[-length:]) == list(marker[:length]):
            return length
    return 0
