"""The block pool under random operations, beside a reference that keeps lists where the pool counts."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE, BlockPool, blocks_for

SIZE = 5
KEYS = [bytes([number]) for number in range(6)]


class BlockPools(RuleBasedStateMachine):
    """A pool, and what it must hold: the tables of its holders, and kept blocks in the order of their last release."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(SIZE)
        self.tables: list[list[int]] = []
        self.kept: dict[bytes, int] = {}
        self.idle: list[int] = []  # kept and held by nobody

    def held(self) -> list[int]:
        return [block for table in self.tables for block in table]

    def took(self, new: list[int], held: list[int]) -> None:
        """Note new blocks, of which the unkept ones must come first, and then those that were idle for longest."""
        unkept = SIZE - len({*held, *self.idle})
        evicted = new[unkept:]
        assert evicted == self.idle[: len(evicted)]
        assert len({*new}) == len(new)
        assert not {*new} & {0, *held, *self.idle[len(evicted) :]}
        self.idle = self.idle[len(evicted) :]
        self.kept = {key: block for key, block in self.kept.items() if block not in evicted}

    @rule(length=st.integers(0, 3 * BLOCK_SIZE))
    def begin(self, length: int) -> None:
        self.grow([], length, new=True)

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))
    def begin_and_keep(self, keys: list[bytes]) -> None:
        count = len(self.tables)
        self.grow([], len(keys) * BLOCK_SIZE, new=True)
        if len(self.tables) > count:
            for block, key in zip(self.tables[-1], keys, strict=True):
                self.keep_one(block, key)

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), more=st.integers(0, 2 * BLOCK_SIZE))
    def go_on(self, data: st.DataObject, more: int) -> None:
        table = data.draw(st.sampled_from(self.tables))
        self.grow(table, len(table) * BLOCK_SIZE + more, new=False)

    def grow(self, table: list[int], length: int, *, new: bool) -> None:
        before, held, free = table.copy(), self.held(), self.pool.free
        taken = self.pool.extend(table, length)
        missing = blocks_for(length) - len(before)
        if missing > free:
            assert taken is None
            assert table == before
            return
        assert taken is not None
        assert (len(taken), table) == (max(0, missing), before + taken)
        self.took(taken, held)
        if new:
            self.tables.append(table)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.tables) - 1))
        table = self.tables.pop(place)
        left = [block for block in reversed(table) if block not in self.held() and block in self.kept.values()]
        self.pool.release(table)
        assert table == []
        self.idle += left

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        count = data.draw(st.integers(0, len(table)))
        self.tables.append(self.pool.share(table[:count]))
        assert self.tables[-1] == table[:count]

    @precondition(lambda self: any(self.held().count(block) > 1 for block in self.held()))
    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        held = self.held()
        shared = [(t, i) for t in self.tables for i, block in enumerate(t) if held.count(block) > 1]
        table, index = data.draw(st.sampled_from(shared))
        before, free = table.copy(), self.pool.free
        new = self.pool.replace(table, index)
        if not free:
            assert (new, table) == (None, before)
            return
        assert new is not None
        assert table == [*before[:index], new, *before[index + 1 :]]
        self.took([new], held)

    @precondition(lambda self: self.held())
    @rule(data=st.data(), key=st.sampled_from(KEYS))
    def keep(self, data: st.DataObject, key: bytes) -> None:
        self.keep_one(data.draw(st.sampled_from(self.held())), key)

    def keep_one(self, block: int, key: bytes) -> None:
        self.pool.keep(block, key)
        if key not in self.kept and block not in self.kept.values():
            self.kept[key] = block

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=4, unique=True))
    def find(self, keys: list[bytes]) -> None:
        known = next((i for i, key in enumerate(keys) if key not in self.kept), len(keys))
        expected = [self.kept[key] for key in keys[:known]]
        assert self.pool.find(keys) == expected
        self.tables.append(expected)
        self.idle = [block for block in self.idle if block not in expected]

    @invariant()
    def counts(self) -> None:
        held = self.held()
        assert self.pool.free == SIZE - len({*held})
        assert all(self.pool.is_shared(block) == (held.count(block) > 1) for block in range(SIZE + 1))

    def teardown(self) -> None:
        """Give everything back: all of the pool can be had again."""
        for table in self.tables:
            self.pool.release(table)
        whole: list[int] = []
        assert self.pool.extend(whole, SIZE * BLOCK_SIZE) is not None
        assert sorted(whole) == [*range(1, SIZE + 1)]


TestBlockPools: Any = BlockPools.TestCase
TestBlockPools.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, derandomize=True, database=None
)
