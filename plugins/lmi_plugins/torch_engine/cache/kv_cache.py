"""Keys and values of all running sequences, in blocks of tokens."""

from collections import Counter
from dataclasses import dataclass

import torch

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The sizes of one attention layer's keys and values of a token."""

    heads: int
    key_size: int
    value_size: int

    @property
    def widths(self) -> tuple[int, int]:
        """The number of elements in a token's keys and in its values."""
        return self.heads * self.key_size, self.heads * self.value_size

    @property
    def padded(self) -> "LayerShape":
        """The shape if zeros follow the smaller of keys and values."""
        size = max(self.key_size, self.value_size)
        return LayerShape(self.heads, size, size)


class PagedCache:
    """The memory of the cache.

    All of it is touched at the start, so that a server's memory use is visible from then on.
    """

    def __init__(
        self,
        shapes: dict[int, LayerShape],
        blocks: int,
        dtype: torch.dtype,
        device: torch.device,
        block_size: int = BLOCK_SIZE,
    ) -> None:
        self._shapes, self._device = shapes, device
        self.block_size = block_size  # tokens
        # One tensor for all layers with the same width, so that clearing blocks is a single operation.
        layers = {layer: self.stored(shape).widths for layer, shape in shapes.items()}
        widths = Counter(width for pair in layers.values() for width in pair)
        self._storage = {
            width: torch.empty(count, blocks + 1, block_size * width, dtype=dtype, device=device).zero_()
            for width, count in widths.items()
        }
        parts = {width: iter(storage) for width, storage in self._storage.items()}
        # Keys and values of each layer: [blocks, block size * width], and by slot: [slots, width].
        self._blocks = {layer: [next(parts[width]) for width in pair] for layer, pair in layers.items()}
        self._slots = {
            layer: [part.view(-1, width) for part, width in zip(self._blocks[layer], pair, strict=True)]
            for layer, pair in layers.items()
        }
        self._gathered = [torch.empty(0, dtype=dtype, device=device) for _ in range(2)]  # keys and values

    @classmethod
    def block_bytes(cls, shapes: dict[int, LayerShape], dtype: torch.dtype, block_size: int = BLOCK_SIZE) -> int:
        """Return the bytes of one block over all layers."""
        return block_size * dtype.itemsize * sum(sum(cls.stored(shape).widths) for shape in shapes.values())

    @classmethod
    def stored(cls, shape: LayerShape) -> LayerShape:
        """Return the shape in the cache of keys and values of this shape."""
        return shape

    def clear(self, blocks: torch.Tensor) -> None:
        """Fill blocks with zeros: masked positions are multiplied by zero, which would not silence a NaN left there."""
        for storage in self._storage.values():
            storage.index_fill_(1, blocks, 0)

    def copy(self, copies: dict[int, int]) -> None:
        """Copy block `source` to block `target` for each `target: source`."""
        targets, sources = (torch.tensor(list(blocks), device=self._device) for blocks in (copies, copies.values()))
        for storage in self._storage.values():
            storage.index_copy_(1, targets, storage.index_select(1, sources))

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store keys and values, [tokens, heads, size], at slots, [tokens], of block * block size + offset."""
        key_slots, value_slots = self._slots[layer]
        key_slots.index_copy_(0, slots, keys.flatten(1))
        value_slots.index_copy_(0, slots, values.flatten(1))

    def read(self, layer: int, tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values, [rows, heads, blocks * block size, size], by block tables, [rows, blocks].

        They are valid until the next read.
        """
        shape, rows, blocks = self._shapes[layer], tables.shape[0], tables.view(-1)
        keys = self._gather(0, layer, blocks).view(rows, -1, shape.heads, shape.key_size)
        values = self._gather(1, layer, blocks).view(rows, -1, shape.heads, shape.value_size)
        return keys.transpose(1, 2), values.transpose(1, 2)

    def _gather(self, kind: int, layer: int, blocks: torch.Tensor) -> torch.Tensor:
        part = self._blocks[layer][kind]
        if part.is_cuda:
            return torch.index_select(part, 0, blocks)
        # All layers use the same memory: on other devices, new memory would cost more than the copy.
        size = len(blocks) * part.shape[1]
        if self._gathered[kind].numel() < size:
            self._gathered[kind] = part.new_empty(size * 5 // 4)
        return torch.index_select(part, 0, blocks, out=self._gathered[kind][:size].view(len(blocks), -1))


class HeadFirstCache(PagedCache):
    """A cache in which the tokens of each head in a block are contiguous, and keys and values have the same size.

    OpenVINO requires the first, and gives wrong results without the second. Zeros fill the smaller of the two.

    `dtype` is the type that PyTorch writes and reads, `stored` the type in memory.
    """

    def __init__(
        self, shapes: dict[int, LayerShape], blocks: int, dtype: torch.dtype, stored: torch.dtype, block_size: int
    ) -> None:
        super().__init__(shapes, blocks, stored, torch.device("cpu"), block_size)
        self._dtype = dtype

    @classmethod
    def stored(cls, shape: LayerShape) -> LayerShape:
        return shape.padded

    def parts(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the memory of a layer's keys and values, both [blocks, heads * block size * size]."""
        keys, values = self._blocks[layer]
        return keys, values

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        indices = slots // self.block_size, slots % self.block_size
        for part, states in zip(self._blocks[layer], (keys, values), strict=True):
            by_token = part.view(len(part), states.shape[1], self.block_size, -1).transpose(1, 2)
            by_token[..., : states.shape[2]].index_put_(indices, states.to(part.dtype))

    def read(self, layer: int, tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shape, (rows, width), blocks = self._shapes[layer], tables.shape, tables.view(-1)
        keys, values = (
            self._gather(kind, layer, blocks).view(rows, width, shape.heads, self.block_size, -1).transpose(1, 2)
            for kind in range(2)
        )
        keys, values = keys[..., : shape.key_size], values[..., : shape.value_size]
        return keys.flatten(2, 3).to(self._dtype), values.flatten(2, 3).to(self._dtype)
