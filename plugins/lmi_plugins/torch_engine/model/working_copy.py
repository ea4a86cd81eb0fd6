"""A contiguous copy of the keys and values of decoding sequences."""

import torch

from lmi_plugins.torch_engine.cache.kv_cache import PagedCache
from lmi_plugins.torch_engine.model.attention_group import AttentionGroup
from lmi_plugins.torch_engine.sequences.sequence import Sequence


class WorkingCopy:
    """A contiguous copy of what the decoding sequences have in the cache, with each head's keys and values together.

    It is gathered once, and then written as the cache is, for as long as each step is over the same sequences.
    """

    def __init__(self, cache: PagedCache, max_blocks: int, device: torch.device) -> None:
        self._cache = cache
        self._max_blocks = max_blocks
        self._device = device
        self._forget()

    def _forget(self) -> None:
        self._group: AttentionGroup | None = None
        self._sequences: list[Sequence] = []
        self._width = 0
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # those gathered so far

    def follow(self, group: AttentionGroup) -> bool:
        """Serve this group in the next step; return False where it does not decode, or memory has no room for it."""
        if not group.decodes or len(group.chunks) * group.width > self._max_blocks:
            self._forget()
            return False
        sequences = [chunk.sequence for chunk in group.chunks]
        if sequences != self._sequences or group.width != self._width:
            self._forget()
            self._sequences, self._width = sequences, group.width
        self._indices = group.token_indices()
        self._group = group
        return True

    def read(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the cache would, given the step's own keys and values, [tokens, heads, size], which it has."""
        copies = self._layers.get(layer)
        if copies is None:
            assert self._group is not None
            keys, values = self._cache.read(layer, self._group.block_tables)
            copies = self._layers[layer] = _by_head(keys), _by_head(values)
        else:
            for copied, states in zip(copies, (key, value), strict=True):
                copied.transpose(1, 2).index_put_(self._indices, states)
        return copies


def _by_head(states: torch.Tensor) -> torch.Tensor:
    """Return a copy in which the tokens of one head follow each other."""
    return states.clone(memory_format=torch.contiguous_format)
