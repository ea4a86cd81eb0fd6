"""States of layers that carry one, kept for sequences that begin with the same tokens.

Keys and values of a prefix are a part of those of the whole; a state is not, so it is kept where it may be needed.
"""

from collections.abc import Callable

from lmi_plugins.torch_engine.sequences.sequence import Sequence

LEAST_GAIN = 128  # tokens; a shorter part of a prompt takes little longer than the additional step that ends after it


class KeptStates:
    """States at the ends of cached blocks; the least recently used are dropped.

    A sequence leaves at most three: at the end of its prompt, where it departed from other prompts, and its latest one.
    """

    def __init__(self, limit: int, block_size: int, fixed: Callable[[object], object]) -> None:
        """Keep at most `limit` states. `fixed` returns a state as it is now, unchanged by later steps."""
        self._limit, self._block_size, self._fixed = limit, block_size, fixed
        self._states: dict[bytes, object] = {}  # by the key of the block, in order of use

    def restore(self, sequence: Sequence, cached: int, limit: int) -> int:
        """Give a sequence its latest state within the `cached` first blocks; return the number of blocks before it.

        The sequence's chunks will end where it departs from other prompts and after `limit` blocks, to keep the state.
        """
        keys = sequence.block_keys
        count = next((count for count in range(cached, 0, -1) if keys[count - 1] in self._states), 0)
        if count:
            key = keys[count - 1]
            sequence.row_cache = self._states[key] = self._states.pop(key)
        ends = (blocks * self._block_size for blocks in {cached, limit})
        sequence.checkpoints = [end for end in ends if end - count * self._block_size >= LEAST_GAIN]
        return count

    def keep(self, sequence: Sequence) -> None:
        """Keep the state of a sequence whose last block is full."""
        if sequence.latest_state is not None:
            self._states.pop(sequence.latest_state, None)
        computed = sequence.num_computed_tokens
        key = sequence.block_keys[computed // self._block_size - 1]
        sequence.latest_state = None if computed in sequence.checkpoints else key
        self._states.pop(key, None)
        self._states[key] = self._fixed(sequence.row_cache)
        if len(self._states) > self._limit:
            del self._states[next(iter(self._states))]
