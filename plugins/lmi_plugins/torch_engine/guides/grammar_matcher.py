"""The grammar state of one sequence."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from lmi_core.errors import LmiError

if TYPE_CHECKING:
    from xgrammar import GrammarMatcher

GiveUp = Callable[[threading.Thread], LmiError]


class Matcher:
    """The grammar state of one sequence, updated on demand."""

    def __init__(self, matcher: "GrammarMatcher", start: int, mask_seconds: float, give_up: GiveUp) -> None:
        """Follow a sequence from its token `start` on; `start` is the length of its prompt.

        `give_up` is called with the thread in which a mask took more CPU time than `mask_seconds`, and returns the
        error for its request.
        """
        self.mask_seconds = mask_seconds
        self.give_up = give_up
        self._matcher = matcher
        self._length = start

    def fill(self, bitmask: torch.Tensor, row: int, token_ids: list[int]) -> None:
        """Set the bits of the tokens that may come next; bitmask: [rows, vocabulary / 32], int32, on the CPU."""
        self._follow(token_ids)
        self._matcher.fill_next_token_bitmask(bitmask, row)

    def fork(self) -> "Matcher":
        """Return a matcher for a sequence that continues from the same tokens."""
        return Matcher(self._matcher.fork(), self._length, self.mask_seconds, self.give_up)

    def _follow(self, token_ids: list[int]) -> None:
        """Roll back removed tokens, then accept new ones."""
        if len(token_ids) < self._length:  # generated tokens were rolled back
            self._matcher.rollback(self._length - len(token_ids))
            self._length = len(token_ids)
        for token_id in token_ids[self._length :]:
            if not self._matcher.accept_token(token_id):
                raise ValueError(f"the grammar does not allow token {token_id}")
            self._length += 1
