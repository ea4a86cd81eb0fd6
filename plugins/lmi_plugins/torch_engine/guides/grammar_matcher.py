"""Follows one sequence through a grammar."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from xgrammar import GrammarMatcher


class Matcher:
    """The place of one sequence in its grammar, brought up to date when it is looked at."""

    def __init__(self, matcher: "GrammarMatcher", start: int) -> None:
        """Follow a sequence from its token `start` on, which is the length of its prompt."""
        self._matcher = matcher
        self._length = start

    def fill(self, bitmask: torch.Tensor, row: int, token_ids: list[int]) -> None:
        """Set the bits of the tokens that may come next; bitmask: [rows, vocabulary / 32], int32, on the CPU."""
        self._follow(token_ids)
        self._matcher.fill_next_token_bitmask(bitmask, row)

    def fork(self) -> "Matcher":
        """Return a matcher for a sequence that goes on from the same tokens."""
        return Matcher(self._matcher.fork(), self._length)

    def _follow(self, token_ids: list[int]) -> None:
        """Accept the tokens that are new, after a rollback of those that were taken back."""
        if len(token_ids) < self._length:  # tokens were taken back
            self._matcher.rollback(self._length - len(token_ids))
            self._length = len(token_ids)
        for token_id in token_ids[self._length :]:
            if not self._matcher.accept_token(token_id):
                raise ValueError(f"the grammar does not allow token {token_id}")
            self._length += 1
