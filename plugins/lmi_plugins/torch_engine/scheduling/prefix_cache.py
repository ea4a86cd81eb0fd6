"""Prompts that begin alike are computed once: full blocks are found again by the tokens up to their end."""

from array import array
from hashlib import sha256

from lmi_plugins.torch_engine.scheduling.block_pool import BLOCK_SIZE, BlockPool
from lmi_plugins.torch_engine.sequence import Sequence


class PrefixCache:
    """Keeps blocks by a key chained from block to block, so that equal keys mean equal heads."""

    def __init__(self, pool: BlockPool, for_draft_model: bool = False) -> None:
        self.prompt_tokens = 0  # of sequences that were looked up
        self.cached_tokens = 0  # of those, not computed again
        self._pool = pool
        self._for_draft_model = for_draft_model  # which has computed what is kept, too

    def restore(self, sequence: Sequence) -> None:
        """Give a sequence that holds no blocks those of its head. Its last token is always left to compute."""
        if sequence.wants_whole_prompt:
            return
        most = (len(sequence.token_ids) - 1) // BLOCK_SIZE
        self._extend_keys(sequence, most)
        sequence.blocks = self._pool.find(sequence.block_keys[:most])
        sequence.kept = len(sequence.blocks)
        sequence.computed = sequence.draft_computed = sequence.kept * BLOCK_SIZE

    def count(self, sequence: Sequence) -> None:
        """What was restored is used."""
        self.prompt_tokens += len(sequence.token_ids)
        self.cached_tokens += sequence.computed

    def keep(self, sequence: Sequence) -> None:
        """Make the blocks that are full and computed findable."""
        computed = min(sequence.computed, sequence.draft_computed) if self._for_draft_model else sequence.computed
        full = computed // BLOCK_SIZE
        if full == sequence.kept or (sequence.search is not None and sequence.started):  # most beams are soon dropped
            return
        self._extend_keys(sequence, full)
        for place in range(sequence.kept, full):
            self._pool.keep(sequence.blocks[place], sequence.block_keys[place])
        sequence.kept = full

    @staticmethod
    def _extend_keys(sequence: Sequence, count: int) -> None:
        keys = sequence.block_keys
        key = keys[-1] if keys else sha256(repr(sequence.variant).encode()).digest()
        for start in range(len(keys) * BLOCK_SIZE, count * BLOCK_SIZE, BLOCK_SIZE):
            tokens = array("q", sequence.token_ids[start : start + BLOCK_SIZE])
            key = sha256(key + tokens.tobytes()).digest()
            keys.append(key)
