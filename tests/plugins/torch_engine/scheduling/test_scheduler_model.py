"""The scheduler, block pool and prefix cache under random operations, beside a reference of what each block holds."""

import random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lmi_core.texts.token_stream import TokenStream
from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE, BlockPool, blocks_for
from lmi_plugins.torch_engine.cache.prefix_cache import PrefixCache
from lmi_plugins.torch_engine.scheduling.prefill_budget import PrefillBudget
from lmi_plugins.torch_engine.scheduling.scheduler import Scheduler
from lmi_plugins.torch_engine.sequences.adapter import Adapter
from lmi_plugins.torch_engine.sequences.sequence import Sequence, SequenceGroup
from lmi_plugins.torch_engine.sequences.step_batch import Chunk
from tests.plugins.torch_engine.scheduling.cache_contents import CacheContents
from tests.plugins.torch_engine.scheduling.test_scheduler import NoText
from tests.plugins.torch_engine.tiny_models import request

BLOCKS, ROWS, LORAS, PREFILL = 7, 4, 1, 10
HEADS = [0, 5, BLOCK_SIZE, 33, 50, 52]  # lengths of what prompts begin with alike; long ones take several steps
MAX_STEPS = 3000  # for all that is there to be finished
ADAPTERS: list[Any] = [None, None, "french", "german"]  # the scheduler asks of them only whether they are the same


class Beams(SequenceGroup):
    """A group whose sequences branch at random, as those of a beam search do."""

    def __init__(self, root: Sequence, pool: BlockPool, width: int) -> None:
        self._root, self._pool, self._width = root, pool, width
        self.restart()

    def restart(self) -> None:
        self.sequences = [self._root.fork([])]
        self.num_rows = self._width

    def branch(self, numbers: random.Random) -> None:
        """Go on from some of the sequences, each once or more often; the others give up their blocks."""
        beams: list[Sequence] = []
        for _ in range(self._width):
            beam = numbers.choice(self.sequences)
            if beam in beams:
                beam = beam.fork(self._pool.share(beam.block_table[: blocks_for(beam.num_computed_tokens)]))
            beams.append(beam)
        for beam in self.sequences:
            if beam not in beams:
                self._pool.release(beam.block_table)
        for beam in beams:
            beam.token_ids.append(numbers.randrange(3))
        self.sequences = beams
        self.num_rows = len(beams)


class Schedulers(RuleBasedStateMachine):
    """A scheduler, the groups that were added to it in order, and what its blocks must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS)
        self.cache = PrefixCache(self.pool)
        self.scheduler = Scheduler(self.pool, ROWS, PrefillBudget(PREFILL), LORAS, self.cache)
        self.contents = CacheContents()
        self.groups: list[SequenceGroup] = []
        self.numbers = random.Random(0)
        self.added = 0

    @rule(
        head=st.sampled_from(HEADS),
        tail=st.lists(st.integers(0, 1), max_size=5),
        more=st.integers(1, 2 * BLOCK_SIZE),
        adapter=st.sampled_from(ADAPTERS),
        samples=st.integers(1, 2),
    )
    def add(self, head: int, tail: list[int], more: int, adapter: Adapter | None, samples: int) -> None:
        """Add a request, whose prompt begins like that of others; each of its samples is a group."""
        for _ in range(samples):
            self.append(SequenceGroup(self.sequence([0] * head + [1, *tail], more, adapter)))

    @rule(head=st.integers(1, BLOCK_SIZE + 8), more=st.integers(1, 12), width=st.integers(2, 3))
    def add_beams(self, head: int, more: int, width: int) -> None:
        root = self.sequence([0] * head, more, None)
        shared = head // BLOCK_SIZE
        if shared + width * (blocks_for(root.max_length) - shared) <= BLOCKS:  # others are refused
            self.append(Beams(root, self.pool, width))

    def sequence(self, prompt: list[int], more: int, adapter: Adapter | None) -> Sequence:
        asked = request(str(self.added), prompt, max_new_tokens=more)
        sequence = Sequence.of(asked, BLOCKS * BLOCK_SIZE, TokenStream(NoText()))
        sequence.adapter, sequence.variant = adapter, (adapter,)
        return sequence

    def append(self, group: SequenceGroup) -> None:
        self.added += 1
        self.groups.append(group)
        self.scheduler.add(group)

    @precondition(lambda self: self.groups)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        group = self.groups.pop(data.draw(st.integers(0, len(self.groups) - 1)))
        self.scheduler.remove(group)
        assert all(sequence.block_table == [] for sequence in group.sequences)

    @rule(count=st.sampled_from([1, 1, 1, 2, 5, 12]), drafted=st.integers(0, 4), seed=st.integers(0, 99))
    def steps(self, count: int, drafted: int, seed: int) -> None:
        self.numbers.seed(seed)
        for _ in range(count):
            self.step(drafted)

    def step(self, drafted: int = 0) -> list[Chunk]:
        """Compute a step as the engine does, with drafts of at most that many tokens."""
        chunks = self.scheduler.schedule()
        self.check_policy(chunks)
        drafts = {id(chunk): self.draft(chunk, drafted) for chunk in chunks}
        if self.scheduler.copies:
            self.contents.copy(self.scheduler.copies)
        self.contents.clear(self.scheduler.new_blocks)
        self.contents.compute(chunks)
        for chunk in chunks:
            self.advance(chunk, drafts[id(chunk)])
        for group in {id(chunk.group): chunk.group for chunk in chunks if chunk.samples}.values():
            self.choose(group)
        return chunks

    def draft(self, chunk: Chunk, drafted: int) -> int:
        """Extend a chunk by drafted tokens if there is room for them; return how many."""
        sequence = chunk.sequence
        count = min(drafted, sequence.max_length - len(sequence.token_ids) - 1)
        if count <= 0 or not chunk.samples or isinstance(chunk.group, Beams):
            return 0
        if not self.scheduler.reserve(sequence, count):
            return 0
        sequence.token_ids += [2] * count
        chunk.end += count
        return count

    def advance(self, chunk: Chunk, drafted: int) -> None:
        """Note what is computed; of drafted tokens some are accepted, the others taken back."""
        accepted = self.numbers.randint(0, drafted)
        sequence = chunk.sequence
        sequence.num_computed_tokens = chunk.end - drafted + accepted
        if drafted > accepted:
            del sequence.token_ids[accepted - drafted :]
        chunk.end = sequence.num_computed_tokens
        if not isinstance(chunk.group, Beams) or not sequence.started:
            self.cache.keep(sequence)

    def choose(self, group: SequenceGroup) -> None:
        """Add a token to each sequence, and end the group that is as long as it was asked for."""
        if isinstance(group, Beams):
            for sequence in group.sequences:
                sequence.started = True
            group.branch(self.numbers)
        else:
            group.sequences[0].started = True
            group.sequences[0].token_ids.append(self.numbers.randrange(3))
        if len(group.sequences[0].token_ids) >= group.sequences[0].max_length:
            self.groups.remove(group)
            self.scheduler.remove(group)

    def check_policy(self, chunks: list[Chunk]) -> None:
        """Check who runs: who decodes always goes on, and prompts are cut to the bounds."""
        running = {id(chunk.group): chunk.group for chunk in chunks}.values()
        assert sum(group.num_rows for group in running) <= ROWS
        assert len({group.sequences[0].adapter for group in running} - {None}) <= LORAS
        prompts = [len(chunk) for chunk in chunks if len(chunk) > 1]
        assert sum(prompts) <= PREFILL
        assert len({id(chunk.sequence) for chunk in chunks}) == len(chunks)
        holding = [each for group in self.groups for each in group.sequences if each.block_table]
        decoding = {id(each) for each in holding if len(each.token_ids) - each.num_computed_tokens == 1}
        assert decoding <= {id(chunk.sequence) for chunk in chunks}
        assert bool(chunks) == bool(self.groups), "nothing runs although somebody waits"

    @invariant()
    def blocks_are_held_by_sequences_alone(self) -> None:
        held = {block for group in self.groups for each in group.sequences for block in each.block_table}
        assert self.pool.free == BLOCKS - len(held)
        assert self.scheduler.has_work == bool(self.groups)

    @invariant()
    def who_waits_holds_nothing(self) -> None:
        for group in self.scheduler._waiting:
            assert all(not each.block_table and not each.num_computed_tokens for each in group.sequences)
            assert len(group.sequences) == 1

    def teardown(self) -> None:
        """Everything that was asked for comes to its end, and all blocks are free then."""
        for _ in range(MAX_STEPS):
            if not self.groups:
                break
            self.step()
        assert not self.groups, "the scheduler goes in circles"
        assert self.pool.free == BLOCKS


TestSchedulers: Any = Schedulers.TestCase
TestSchedulers.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, database=None
)
