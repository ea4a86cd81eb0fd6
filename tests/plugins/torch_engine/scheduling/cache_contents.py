"""What the blocks of a cache hold, as a reference for the scheduler: by slot the tokens that its state depends on."""

from collections.abc import Iterable

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.step_batch import Chunk

Content = tuple[tuple[object, ...], tuple[int, ...]]  # the variant, and the tokens up to this one


class CacheContents:
    """The slots of all blocks, which are copied, cleared, read and written as a step of the engine does it."""

    def __init__(self) -> None:
        self._slots: dict[tuple[int, int], Content] = {}  # by block and offset

    def copy(self, copies: dict[int, int]) -> None:
        """Copy blocks, target to source, all of them as they were before."""
        before = self._slots.copy()
        for target, source in copies.items():
            for offset in range(BLOCK_SIZE):
                self._slots.pop((target, offset), None)
                if (source, offset) in before:
                    self._slots[target, offset] = before[source, offset]

    def clear(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            for offset in range(BLOCK_SIZE):
                self._slots.pop((block, offset), None)

    def compute(self, chunks: list[Chunk]) -> None:
        """Write the tokens of all chunks, then have each read all that is before its end, as attention does."""
        written = [slot for chunk in chunks for slot in self._write(chunk)]
        assert len({*written}) == len(written), "two chunks write to one slot"
        for chunk in chunks:
            for position in range(chunk.end):
                found = self._slots.get(slot_of(chunk.sequence, position))
                assert found == content(chunk.sequence, position), f"{chunk.sequence.request_id} at {position}"

    def _write(self, chunk: Chunk) -> Iterable[tuple[int, int]]:
        for position in range(chunk.start, chunk.end):
            slot = slot_of(chunk.sequence, position)
            self._slots[slot] = content(chunk.sequence, position)
            yield slot


def slot_of(sequence: Sequence, position: int) -> tuple[int, int]:
    """Return the block and the offset in it."""
    return sequence.block_table[position // BLOCK_SIZE], position % BLOCK_SIZE


def content(sequence: Sequence, position: int) -> Content:
    return sequence.variant, tuple(sequence.token_ids[: position + 1])
