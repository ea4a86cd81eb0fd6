"""Keys and values of the sequences that decode, side by side, as attention reads them."""

import torch

from lmi_plugins.torch_engine.model.chunk_group import ChunkGroup
from lmi_plugins.torch_engine.scheduling.kv_cache import PagedCache
from lmi_plugins.torch_engine.sequence import Sequence


class WorkingCopy:
    """Gathered once, and then written as the cache is, for as long as each step is over the same sequences.

    Each head's lie together, which the cache, whose blocks are tokens, has no place for.
    """

    def __init__(self, cache: PagedCache, most_blocks: int, device: torch.device) -> None:
        self._cache = cache
        self._most_blocks = most_blocks
        self._device = device
        self._forget()

    def _forget(self) -> None:
        self._group: ChunkGroup | None = None
        self._sequences: list[Sequence] = []
        self._width = 0
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # those gathered so far

    def follow(self, group: ChunkGroup) -> bool:
        """Be that of the next step; False where it is none of decoding sequences, or memory has no room for them."""
        if not group.decodes or len(group.chunks) * group.width > self._most_blocks:
            self._forget()
            return False
        sequences = [chunk.sequence for chunk in group.chunks]
        if sequences != self._sequences or group.width != self._width:
            self._forget()
            self._sequences, self._width = sequences, group.width
        rows = [row for row in range(len(group.chunks)) for _ in range(group.length)]
        positions = [position for chunk in group.chunks for position in range(chunk.start, chunk.end)]
        self._places = torch.tensor([rows, positions], device=self._device).unbind()
        self._group = group
        return True

    def read(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As the cache, which has the step's own keys and values, [tokens, heads, size], already."""
        copies = self._layers.get(layer)
        if copies is None:
            assert self._group is not None
            keys, values = self._cache.read(layer, self._group.tables)
            copies = self._layers[layer] = _by_head(keys), _by_head(values)
        else:
            for copied, states in zip(copies, (key, value), strict=True):
                copied.transpose(1, 2).index_put_(self._places, states)
        return copies


def _by_head(states: torch.Tensor) -> torch.Tensor:
    return states.clone(memory_format=torch.contiguous_format)
