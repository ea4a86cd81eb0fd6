"""The choice of a replica for a request: the one with the fewest tokens to process, including this request's.

Only the tokens after the longest prefix in the replica's cache count. So requests with the same
beginning, such as a system prompt or the turns of a chat, stay together unless their replica's load exceeds the
savings. A full replica, in which the request would wait for another one's end, is chosen only if all are full.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from lmi_core.workers.isolation import Work
from lmi_core.workers.replica import Replica

BLOCK = 64  # tokens of each of the first eight blocks of a prefix; then the size doubles after every four
SAMPLE = 8  # tokens of a larger block that are compared
MAX_BLOCKS = 100_000  # remembered, from the most recent requests
COMPARED = 32  # replicas per request, of any number: the best of these is hardly worse than the best of all
MAX_HOLDERS = 8  # remembered per block, the most recent ones

R = TypeVar("R", bound=Replica)

_ENDS = tuple(accumulate(BLOCK << max(0, index // 4 - 1) for index in range(80)))  # of blocks


class Router(Generic[R]):
    """The prefixes that each replica has received."""

    def __init__(self, first: int = 0, max_sequences: int = 0) -> None:
        """Start with the replica numbered `first`, modulo their count, if several have the same load.

        A replica with `max_sequences` is full.
        """
        self._first = first
        self._max_sequences = max_sequences
        self._holders: OrderedDict[int, list[R]] = OrderedDict()  # by the hash of the prefix up to the end of a block

    def choose(self, replicas: Sequence[R], work: Work) -> R:
        """Return the replica for a request, which is assumed to cache the prompt from then on."""
        keys, held = list(_keys(work)), dict[R, int]()
        for end, key in keys:
            if (holders := self._holders.get(key)) is None:
                break
            held.update(dict.fromkeys(holders, end))
        first = self._first % len(replicas)
        ordered = (*replicas[first:], *replicas[:first]) if first else replicas
        if len(replicas) > COMPARED:
            self._first += COMPARED  # others for the next request
        chosen = _least_loaded(ordered[:COMPARED])
        if self._is_full(chosen) and (free := [each for each in ordered if not self._is_full(each)]):
            chosen = _least_loaded(free)
        all_full = self._is_full(chosen)
        fewest = chosen.isolation.tokens - held.get(chosen, 0)
        for replica, tokens in held.items():
            left = replica.isolation.tokens - tokens
            if left < fewest and replica in replicas and (all_full or not self._is_full(replica)):
                chosen, fewest = replica, left
        self._remember(keys, chosen)
        return chosen

    def forget(self, replica: R) -> None:
        """Drop the prefixes of a replica that has lost its cache."""
        for holders in self._holders.values():
            if replica in holders:
                holders.remove(replica)

    def _is_full(self, replica: R) -> bool:
        return replica.isolation.sequences >= self._max_sequences

    def _remember(self, keys: Sequence[tuple[int, int]], replica: R) -> None:
        for _, key in reversed(keys):  # the shortest prefix is forgotten last
            holders = self._holders.get(key)
            if holders is None:
                self._holders[key] = [replica]
                continue
            self._holders.move_to_end(key)
            if replica not in holders:
                holders.append(replica)
                del holders[:-MAX_HOLDERS]
        while len(self._holders) > MAX_BLOCKS:
            self._holders.popitem(last=False)


def _least_loaded(replicas: Sequence[R]) -> R:
    tokens = [replica.isolation.tokens for replica in replicas]  # faster than min with a key
    return replicas[tokens.index(min(tokens))]


def _keys(work: Work) -> Iterator[tuple[int, int]]:
    """Yield the length of each prefix of whole blocks, and its key."""
    prompt, key, start = work.prompt, hash(work.kind), 0
    for end in _ENDS:
        if end > len(prompt):
            break
        size = end - start
        # Not all tokens of a large block: prompts with the same ones here differ in few others, if any
        key = hash((key, *prompt[start : end : 1 if size == BLOCK else size // SAMPLE]))
        start = end
        yield end, key
