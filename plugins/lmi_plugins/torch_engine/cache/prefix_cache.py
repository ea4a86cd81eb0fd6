"""The prefix cache: common prefixes of prompts are computed once, and found again by the tokens of full blocks."""

from array import array
from hashlib import sha256

from lmi_plugins.torch_engine.cache.block_pool import BlockPool
from lmi_plugins.torch_engine.cache.kept_states import KeptStates
from lmi_plugins.torch_engine.sequences.sequence import Sequence


class PrefixCache:
    """Full blocks by keys that are chained from block to block, so that equal keys mean equal prefixes."""

    def __init__(self, pool: BlockPool, for_draft_model: bool = False, states: KeptStates | None = None) -> None:
        self.prompt_tokens = 0  # of sequences that were looked up
        self.cached_tokens = 0  # of these, the tokens not computed again
        self._pool = pool
        self._for_draft_model = for_draft_model  # the draft model has computed the cached blocks too
        self._states = states  # if the model has any

    def restore(self, sequence: Sequence) -> None:
        """Restore the cached blocks of a new sequence's prefix. Its last token is always left to compute."""
        if sequence.wants_whole_prompt:
            return
        limit = (len(sequence.token_ids) - 1) // self._pool.block_size
        self._extend_keys(sequence, limit)
        sequence.block_table = self._pool.find(sequence.block_keys[:limit])
        if self._states is not None:
            count = self._states.restore(sequence, len(sequence.block_table), limit)
            self._pool.release(sequence.block_table[count:])
            del sequence.block_table[count:]
        sequence.num_cached_blocks = len(sequence.block_table)
        sequence.num_computed_tokens = sequence.num_draft_computed_tokens = (
            sequence.num_cached_blocks * self._pool.block_size
        )

    def count(self, sequence: Sequence) -> None:
        """Add a sequence with restored tokens to the statistics, and record their number in the sequence."""
        self.prompt_tokens += len(sequence.token_ids)
        self.cached_tokens += sequence.num_computed_tokens
        # Tokens of its own that a sequence finds again after preemption do not count.
        if not sequence.started and sequence.num_cached_tokens is None:
            sequence.num_cached_tokens = sequence.num_computed_tokens

    def keep(self, sequence: Sequence) -> None:
        """Make the sequence's full and computed blocks findable."""
        computed = sequence.num_computed_tokens
        if self._for_draft_model:
            computed = min(computed, sequence.num_draft_computed_tokens)
        full = computed // self._pool.block_size
        if full == sequence.num_cached_blocks:
            return
        self._extend_keys(sequence, full)
        for index in range(sequence.num_cached_blocks, full):
            self._pool.keep(sequence.block_table[index], sequence.block_keys[index])
        sequence.num_cached_blocks = full
        if self._states is not None and computed == full * self._pool.block_size:
            self._states.keep(sequence)

    def _extend_keys(self, sequence: Sequence, count: int) -> None:
        """Compute the keys of the sequence's first `count` blocks."""
        keys, size = sequence.block_keys, self._pool.block_size
        key = keys[-1] if keys else sha256(repr(sequence.variant).encode()).digest()
        for start in range(len(keys) * size, count * size, size):
            tokens = array("q", sequence.token_ids[start : start + size])
            key = sha256(key + tokens.tobytes()).digest()
            keys.append(key)
