"""Who holds which blocks of the cache, and which of them are worth keeping when nobody does."""

from collections.abc import Iterable

BLOCK_SIZE = 16  # tokens


def blocks_for(length: int) -> int:
    """How many blocks hold so many tokens."""
    return -(-length // BLOCK_SIZE)


class BlockPool:
    """Hands out blocks by number, low ones first. Block 0 is never handed out: it pads the block tables.

    A block may have several holders. One that was kept under a key can be found again until it is needed otherwise:
    of those that nobody holds, the one that was released first goes first.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._free = list(range(size, 0, -1))
        self._holders = [0] * (size + 1)
        self._kept: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}  # of the kept blocks
        self._idle: dict[int, None] = {}  # kept blocks that nobody holds, in the order of their release

    @property
    def free(self) -> int:
        """How many blocks can be handed out."""
        return len(self._free) + len(self._idle)

    def extend(self, blocks: list[int], length: int) -> list[int] | None:
        """Make the blocks hold so many tokens; gives the new ones, or None (and takes none) where too few are free."""
        missing = blocks_for(length) - len(blocks)
        if missing > self.free:
            return None
        new = [self._take() for _ in range(missing)]
        blocks.extend(new)
        return new

    def release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):  # the end of a prompt is of less use to others than its beginning
            self._holders[block] -= 1
            if not self._holders[block]:
                if block in self._keys:
                    self._idle[block] = None
                else:
                    self._free.append(block)
        blocks.clear()

    def share(self, blocks: Iterable[int]) -> list[int]:
        """The same blocks, for one more holder."""
        shared = list(blocks)
        for block in shared:
            self._holders[block] += 1
        return shared

    def is_shared(self, block: int) -> bool:
        return self._holders[block] > 1

    def replace(self, blocks: list[int], place: int) -> int | None:
        """Put a new block in the place of one that others hold too; None where none is free."""
        if not self.free:
            return None
        new = self._take()
        self._holders[blocks[place]] -= 1
        blocks[place] = new
        return new

    def keep(self, block: int, key: bytes) -> None:
        """The first block with a key is the one that is found."""
        if key not in self._kept and block not in self._keys:
            self._kept[key] = block
            self._keys[block] = key

    def find(self, keys: Iterable[bytes]) -> list[int]:
        """The blocks of as many of the first keys as are kept, held for the caller."""
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
