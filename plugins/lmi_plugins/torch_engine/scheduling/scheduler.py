"""Chooses what each step computes: who runs, who waits, and whose blocks go to someone else."""

from collections import deque
from collections.abc import Sequence as Items

from lmi_plugins.torch_engine.adapters.adapter import Adapter
from lmi_plugins.torch_engine.scheduling.block_pool import BLOCK_SIZE, BlockPool, blocks_for
from lmi_plugins.torch_engine.scheduling.prefill_budget import PrefillBudget
from lmi_plugins.torch_engine.scheduling.prefix_cache import PrefixCache
from lmi_plugins.torch_engine.sequence import Chunk, Sequence


class Scheduler:
    """Sequences run in the order in which they joined; where blocks run out, the latest to join gives up its own."""

    def __init__(
        self,
        pool: BlockPool,
        max_batch_size: int,
        max_prefill_tokens: int,
        max_loras: int = 0,
        prefix_cache: PrefixCache | None = None,
    ) -> None:
        self._pool = pool
        self._prefix_cache = prefix_cache
        self._max_batch_size = max_batch_size
        self.prefill_budget = PrefillBudget(max_prefill_tokens)
        self._max_loras = max_loras
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self.new_blocks: list[int] = []  # handed out for the latest step
        self.copies: dict[int, int] = {}  # for the latest step: blocks to fill, and those that hold what goes in

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._running)

    def add(self, sequence: Sequence) -> None:
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, with the beams of its search, and free its blocks at once."""
        for each in sequence.company:
            if each in self._running:
                self._running.remove(each)
            else:
                self._waiting.remove(each)
            self._release(each)

    def replace(self, old: Items[Sequence], new: Items[Sequence]) -> None:
        """The beams of a search go on as these, some of which may be the same."""
        place = self._running.index(old[0])
        self._running[place : place + len(old)] = new
        for each in old:
            if each not in new:
                self._release(each)

    def reserve(self, sequence: Sequence, count: int) -> bool:
        """Room for so many tokens more than it has, if that leaves a block for each that runs."""
        length = len(sequence.token_ids) + count
        missing = blocks_for(length) - len(sequence.blocks)
        if missing > 0 and missing + len(self._running) > self._pool.free:
            return False
        self.new_blocks += self._pool.extend(sequence.blocks, length) or ()
        return True

    def schedule(self) -> list[Chunk]:
        """The chunks of the next step, those of a single token first: what decodes never waits for a long prompt."""
        self.new_blocks, self.copies = [], {}
        self._make_room()
        self._admit()
        return sorted(self._cut_chunks(), key=lambda chunk: len(chunk) > 1)

    def _make_room(self) -> None:
        """Find a place for every running sequence's latest token."""
        place = 0
        while place < len(self._running):  # the list may lose its end
            sequence = self._running[place]
            while not self._reserve(sequence):
                self._preempt()
                if place >= len(self._running):
                    break
            place += 1

    def _preempt(self) -> None:
        company = self._running[-1].company
        del self._running[-len(company) :]
        for each in company:
            self._release(each)
        latest = company[0]
        self._waiting.appendleft(latest if latest.search is None else latest.search.restart())

    def _admit(self) -> None:
        while (sequence := self._next()) is not None:
            rows = sum([each.rows for each in self._running])
            if rows + sequence.rows > self._max_batch_size:
                return
            if self._prefix_cache is not None:
                self._prefix_cache.restore(sequence)
            missing = blocks_for(len(sequence.token_ids)) - len(sequence.blocks)
            # A block to spare for each that runs, or it would soon have to leave again.
            if self._running and missing + rows > self._pool.free:
                self._release(sequence)
                return
            if self._prefix_cache is not None:
                self._prefix_cache.count(sequence)
            self._reserve(sequence)
            self._running.append(sequence)
            self._waiting.remove(sequence)

    def _next(self) -> Sequence | None:
        """Who is admitted next. One whose adapter has no place is overtaken only by those that need none."""
        if not self._waiting or self._has_place(self._waiting[0].adapter):
            return self._waiting[0] if self._waiting else None
        return next((sequence for sequence in self._waiting if sequence.adapter is None), None)

    def _has_place(self, adapter: Adapter | None) -> bool:
        return adapter is None or len({each.adapter for each in self._running} - {None} | {adapter}) <= self._max_loras

    def _reserve(self, sequence: Sequence) -> bool:
        new = self._pool.extend(sequence.blocks, len(sequence.token_ids))
        if new is None:
            return False
        self.new_blocks += new
        place = sequence.computed // BLOCK_SIZE  # of the block that is written next
        shared = sequence.blocks[place]
        return not self._pool.is_shared(shared) or self._copy(sequence, place)

    def _copy(self, sequence: Sequence, place: int) -> bool:
        """A block of its own, in the place of one that others go on from too."""
        shared = sequence.blocks[place]
        new = self._pool.replace(sequence.blocks, place)
        if new is None:
            return False
        self.copies[new] = shared
        return True

    def _cut_chunks(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        decoding = [sequence.pending for sequence in self._running].count(1)
        budget = self.prefill_budget.tokens(decoding, len(self._running) - decoding)
        for sequence in self._running:
            count = sequence.pending
            if count > 1:
                count = min(count, budget)
                budget -= count
            if count:
                chunks.append(Chunk(sequence, sequence.computed, sequence.computed + count))
        return chunks

    def _release(self, sequence: Sequence) -> None:
        self._pool.release(sequence.blocks)
        sequence.restart()
