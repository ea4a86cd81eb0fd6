"""Reference counts of the cache's blocks, and the order in which unused blocks are evicted."""

from collections.abc import Iterable

BLOCK_SIZE = 16  # tokens, unless a runner needs another block size


def blocks_for(length: int, block_size: int = BLOCK_SIZE) -> int:
    """Return the number of blocks for `length` tokens."""
    return -(-length // block_size)


class BlockPool:
    """The blocks of the cache, allocated by number, lowest first.

    Block 0 is never allocated: it pads block tables. A block may have several holders. A block kept under a key can be
    found again until its memory is needed; blocks without holders are reused in order of release.
    """

    def __init__(self, size: int, block_size: int = BLOCK_SIZE) -> None:
        self.size = size
        self.block_size = block_size  # tokens
        self._free = list(range(size, 0, -1))
        self._holders = [0] * (size + 1)
        self._kept: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}  # keys of the cached blocks
        self._idle: dict[int, None] = {}  # cached blocks that nothing uses, in order of release

    @property
    def free(self) -> int:
        """The number of blocks that can be allocated."""
        return len(self._free) + len(self._idle)

    def blocks_for(self, length: int) -> int:
        """Return the number of blocks for `length` tokens."""
        return -(-length // self.block_size)

    def extend(self, block_table: list[int], length: int) -> list[int] | None:
        """Extend a block table to `length` tokens; return the new blocks, or None, without a change, if there are
        too few.
        """
        missing = self.blocks_for(length) - len(block_table)
        if missing <= 0:
            return []
        if missing > self.free:
            return None
        new = [self._take() for _ in range(missing)]
        block_table.extend(new)
        return new

    def release(self, block_table: list[int]) -> None:
        """Release all blocks of a block table, and empty it."""
        for block in reversed(block_table):  # the end of a prompt is less useful to other sequences than its beginning
            self._holders[block] -= 1
            if not self._holders[block]:
                if block in self._keys:
                    self._idle[block] = None
                else:
                    self._free.append(block)
        block_table.clear()

    def share(self, blocks: Iterable[int]) -> list[int]:
        """Return a block table of the same blocks, for one more holder."""
        shared = list(blocks)
        for block in shared:
            self._holders[block] += 1
        return shared

    def is_shared(self, block: int) -> bool:
        return self._holders[block] > 1

    def replace(self, block_table: list[int], index: int) -> int | None:
        """Replace a shared block with a new one, and return it; None if none is free."""
        if not self.free:
            return None
        new = self._take()
        self._holders[block_table[index]] -= 1
        block_table[index] = new
        return new

    def keep(self, block: int, key: bytes) -> None:
        """Make a block findable by a key, unless another block already is."""
        if key not in self._kept and block not in self._keys:
            self._kept[key] = block
            self._keys[block] = key

    def find(self, keys: Iterable[bytes]) -> list[int]:
        """Return the blocks of the longest kept prefix of the keys, held for the caller."""
        found = []
        for key in keys:
            block = self._kept.get(key)
            if block is None:
                break
            self._idle.pop(block, None)
            self._holders[block] += 1
            found.append(block)
        return found

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block = next(iter(self._idle))
            del self._idle[block], self._kept[self._keys.pop(block)]
        self._holders[block] = 1
        return block
