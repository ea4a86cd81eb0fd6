import pytest

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE, BlockPool, blocks_for


@pytest.mark.parametrize(("length", "blocks"), [(0, 0), (1, 1), (BLOCK_SIZE, 1), (BLOCK_SIZE + 1, 2)])
def test_blocks_for(length: int, blocks: int) -> None:
    assert blocks_for(length) == blocks


def test_hands_out_low_blocks_first_and_all_or_none() -> None:
    pool, table, other = BlockPool(4), list[int](), list[int]()
    assert pool.extend(table, 1) == [1]
    assert pool.extend(table, BLOCK_SIZE) == []
    assert pool.extend(table, 2 * BLOCK_SIZE + 1) == [2, 3]
    assert pool.extend(other, 2 * BLOCK_SIZE) is None
    assert (table, other, pool.free) == ([1, 2, 3], [], 1)
    pool.release(table)
    assert (table, pool.free) == ([], 4)
    assert pool.extend(other, 2 * BLOCK_SIZE) == [1, 2]


def test_a_shared_block_is_free_once_nobody_holds_it() -> None:
    pool, table = BlockPool(2), list[int]()
    pool.extend(table, 1)
    other = pool.share(table)
    assert (other, pool.is_shared(1)) == ([1], True)
    pool.release(table)
    assert (pool.free, pool.is_shared(1)) == (1, False)
    pool.release(other)
    assert pool.free == 2


def test_a_new_block_takes_the_place_of_a_shared_one() -> None:
    pool, table = BlockPool(2), list[int]()
    pool.extend(table, 1)
    other = pool.share(table)
    assert pool.replace(other, 0) == 2
    assert (table, other, pool.is_shared(1), pool.free) == ([1], [2], False, 0)
    third = pool.share(table)
    assert pool.replace(third, 0) is None
    assert third == [1]


def add_blocks(pool: BlockPool, *keys: bytes) -> list[int]:
    """New blocks that are kept under these keys."""
    table: list[int] = []
    pool.extend(table, len(keys) * BLOCK_SIZE)
    for block, key in zip(table, keys, strict=True):
        pool.keep(block, key)
    return table


def test_kept_blocks_are_found_until_they_are_needed() -> None:
    pool = BlockPool(3)
    table = add_blocks(pool, b"a", b"b")
    assert pool.find([b"a", b"x", b"b"]) == [1]
    pool.release([1])
    pool.release(table)
    assert pool.free == 3
    found = pool.find([b"a", b"b"])
    assert (found, pool.free) == ([1, 2], 1)
    pool.release(found)
    other: list[int] = []
    assert pool.extend(other, 2 * BLOCK_SIZE) == [3, 2]  # the end of what was kept goes first
    assert pool.find([b"a", b"b"]) == [1]


def test_what_was_used_last_stays_longest() -> None:
    pool = BlockPool(2)
    for key in (b"a", b"b"):
        pool.release(add_blocks(pool, key))
    pool.release(pool.find([b"a"]))
    add_blocks(pool, b"c")
    assert pool.find([b"b"]) == []
    assert pool.find([b"a"]) == [1]


def test_the_first_block_with_a_key_is_the_one_that_is_found() -> None:
    pool = BlockPool(2)
    first, second = add_blocks(pool, b"a"), add_blocks(pool, b"a")
    pool.release(second)
    assert pool.find([b"a"]) == first
    pool.release(first)
    pool.release([1])
    assert pool.free == 2
