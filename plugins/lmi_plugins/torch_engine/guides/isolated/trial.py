"""The trial of a compiled grammar; with some grammars, computing the next allowed tokens takes minutes.

A trial runs in its own process, which a signal ends at the first mask that takes too long: nothing else can interrupt
it.
"""

import random
import signal
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from xgrammar import allocate_token_bitmask

WALKS = 3  # number of texts
STEPS = 24  # tokens per text
STEPS_FOR_VLLM = 100  # more, because vLLM does not limit the time of a guide in use

Lengths = npt.NDArray[np.int64]  # length of each token's text, in bytes


class Matcher(Protocol):
    """A matcher of a grammar, by xgrammar or another library."""

    def fill_next_token_bitmask(self, bitmask: Any, /) -> object: ...

    def accept_token(self, token_id: int, /) -> object: ...

    def is_terminated(self) -> bool: ...


def token_lengths(vocabulary: list[bytes]) -> Lengths:
    return np.array([len(text) for text in vocabulary], dtype=np.int64)


def try_masks(matcher: Callable[[], Matcher], lengths: Lengths, mask_seconds: float, steps: int) -> None:
    """Follow some texts of that many tokens through a grammar, each with its own matcher.

    SIGVTALRM ends the process at a mask that takes more CPU time. Raise ValueError for a grammar that matches no text.
    """
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    chance = random.Random(0)
    for walk in range(WALKS):
        _walk(matcher(), lengths, mask_seconds, steps, chance if walk else None)


def _walk(matcher: Matcher, lengths: Lengths, mask_seconds: float, steps: int, chance: random.Random | None) -> None:
    """Follow one text of random tokens, or of the longest ones, with which it grows fastest."""
    bitmask = allocate_token_bitmask(1, len(lengths))
    bits = bitmask.numpy().view(np.uint8)[0]
    for step in range(steps):
        signal.setitimer(signal.ITIMER_VIRTUAL, mask_seconds)
        matcher.fill_next_token_bitmask(bitmask)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little")[: len(lengths)])
        if not len(allowed):
            if step == 0:
                raise ValueError("it does not allow any text")
            return
        index = int(lengths[allowed].argmax()) if chance is None else chance.randrange(len(allowed))
        signal.setitimer(signal.ITIMER_VIRTUAL, mask_seconds)
        matcher.accept_token(int(allowed[index]))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if matcher.is_terminated():
            return
