"""The scheduler, which decides for each step which sequences run, wait, or are preempted."""

from collections import deque
from collections.abc import Callable
from time import monotonic

from lmi_plugins.torch_engine.cache.block_pool import BlockPool
from lmi_plugins.torch_engine.cache.prefix_cache import PrefixCache
from lmi_plugins.torch_engine.scheduling.prefill_budget import PrefillBudget
from lmi_plugins.torch_engine.sequences.adapter import Adapter
from lmi_plugins.torch_engine.sequences.sequence import Sequence, SequenceGroup
from lmi_plugins.torch_engine.sequences.step_batch import Chunk


class Scheduler:
    """The scheduler of sequence groups, in order of admission; if blocks run out, the latest group is preempted."""

    def __init__(
        self,
        pool: BlockPool,
        max_batch_size: int,
        prefill_budget: PrefillBudget,
        max_loras: int = 0,
        prefix_cache: PrefixCache | None = None,
        pinned: Callable[[], set[Adapter]] = set,
        splits_prompts: bool = True,
    ) -> None:
        """Create a scheduler of at most `max_loras` adapters per step, including pinned ones."""
        self._pool = pool
        self._prefix_cache = prefix_cache
        self._max_batch_size = max_batch_size
        self.prefill_budget = prefill_budget
        self._max_loras = max_loras
        self._pinned = pinned
        self._splits_prompts = splits_prompts
        self._waiting: deque[SequenceGroup] = deque()
        self._running: list[SequenceGroup] = []
        self.new_blocks: list[int] = []  # allocated for the most recent step
        self.copies: dict[int, int] = {}  # for the most recent step, from target block to source block

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def running_ids(self) -> list[str]:
        """The ids of the running requests, once per requested sequence."""
        return [group.request_id for group in self._running]

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def unnoticed_tokens(self) -> int:
        """The number of additional tokens in a step that hardly delay the running sequences."""
        return self.prefill_budget.tokens(len(self._running), 0)

    def add(self, group: SequenceGroup) -> None:
        self._waiting.append(group)

    def remove(self, group: SequenceGroup) -> None:
        """Remove a running or waiting group, and free its blocks immediately."""
        if group in self._running:
            self._running.remove(group)
        else:
            self._waiting.remove(group)
        self._release(group)

    def reserve(self, sequence: Sequence, count: int) -> bool:
        """Reserve `count` more tokens for a running sequence, if that leaves a block for every running one."""
        length = len(sequence.token_ids) + count
        missing = self._pool.blocks_for(length) - len(sequence.block_table)
        if missing > 0 and missing + sum(len(group.sequences) for group in self._running) > self._pool.free:
            return False
        self.new_blocks += self._pool.extend(sequence.block_table, length) or ()
        return True

    def schedule(self) -> list[Chunk]:
        """Return the chunks of the next step, single tokens first, so that decoding never waits for a long prompt."""
        self.new_blocks, self.copies = [], {}
        self._outgrow()
        self._make_room()
        self._admit()
        decoding, prefilling = self._cut_chunks()
        return decoding + prefilling

    def _outgrow(self) -> None:
        """Restart sequences that have become too long for their computed state."""
        for group in self._running:
            for sequence in group.sequences:
                if sequence.outgrown:
                    self._pool.release(sequence.block_table)
                    sequence.outgrow()

    def _make_room(self) -> None:
        """Find a slot for the latest token of every running sequence; preempt the latest groups if there are too
        few.
        """
        index = 0
        while index < len(self._running):  # a preemption may remove the last sequences
            for sequence in self._running[index].sequences:
                while index < len(self._running) and not self._allocate(sequence):
                    self._preempt()
            index += 1

    def _preempt(self) -> None:
        group = self._running.pop()
        self._release(group)
        group.restart()
        self._waiting.appendleft(group)

    def _admit(self) -> None:
        while (group := self._next()) is not None:
            rows = sum([each.num_rows for each in self._running])
            if rows + group.num_rows > self._max_batch_size:
                return
            (sequence,) = group.sequences
            if self._prefix_cache is not None:
                self._prefix_cache.restore(sequence)
            missing = self._pool.blocks_for(len(sequence.token_ids)) - len(sequence.block_table)
            # Keep one spare block per running sequence, or the new one would soon be preempted.
            if self._running and missing + rows > self._pool.free:
                self._release(group)
                return
            if self._prefix_cache is not None:
                self._prefix_cache.count(sequence)
            elif not sequence.started:
                sequence.num_cached_tokens = 0
            self._allocate(sequence)
            if sequence.queue_time is None and not sequence.started:
                sequence.queue_time = monotonic() - sequence.arrived
            self._running.append(group)
            self._waiting.remove(group)

    def _next(self) -> SequenceGroup | None:
        """Return the group to admit next.

        A group that waits for an adapter slot is overtaken only by groups without adapters.
        """
        if not self._waiting or self._has_slot(_adapter(self._waiting[0])):
            return self._waiting[0] if self._waiting else None
        return next((group for group in self._waiting if _adapter(group) is None), None)

    def _has_slot(self, adapter: Adapter | None) -> bool:
        """Return whether the adapter can be on the device with the pinned ones and those of all running groups."""
        if adapter is None:
            return True
        running = {_adapter(group) for group in self._running} - {None}
        return len(running | self._pinned() | {adapter}) <= self._max_loras

    def _allocate(self, sequence: Sequence) -> bool:
        """Allocate blocks for all tokens of the sequence, with the next one to write unshared; return whether this
        succeeds.
        """
        new = self._pool.extend(sequence.block_table, len(sequence.token_ids))
        if new is None:
            return False
        self.new_blocks += new
        index = sequence.num_computed_tokens // self._pool.block_size  # the block that is written next
        return not self._pool.is_shared(sequence.block_table[index]) or self._copy_on_write(sequence, index)

    def _copy_on_write(self, sequence: Sequence, index: int) -> bool:
        """Replace a shared block of the sequence with its own, which gets the same contents before the step."""
        shared = sequence.block_table[index]
        new = self._pool.replace(sequence.block_table, index)
        if new is None:
            return False
        self.copies[new] = shared
        return True

    def _cut_chunks(self) -> tuple[list[Chunk], list[Chunk]]:
        """Return the next chunks of running sequences: one new token, or as many as the prefill budget allows."""
        single: list[Chunk] = []
        prompts: list[Chunk] = []
        for group in self._running:
            for sequence in group.sequences:
                start = sequence.num_computed_tokens
                end = min([len(sequence.token_ids), *(each for each in sequence.checkpoints if each > start)])
                if end > start:
                    (single if end - start == 1 else prompts).append(Chunk(group, sequence, start, end))
        if not prompts:
            return single, prompts
        budget = self.prefill_budget.tokens(len(single), len(prompts))
        long: list[Chunk] = []
        for chunk in prompts:
            if self._splits_prompts or budget == 0:
                chunk.end = min(chunk.end, chunk.start + budget)
            length = chunk.end - chunk.start
            budget = max(budget - length, 0)
            if length:
                (single if length == 1 else long).append(chunk)
        return single, long

    def _release(self, group: SequenceGroup) -> None:
        """Free the blocks of the group's sequences."""
        for sequence in group.sequences:
            self._pool.release(sequence.block_table)
            sequence.restart()


def _adapter(group: SequenceGroup) -> Adapter | None:
    """Return the adapter of all sequences of the group."""
    return group.sequences[0].adapter
