"""The attention of one step's chunks over the paged cache."""

from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.model.attention import AttentionOptions, AttentionStep
from lmi_plugins.torch_engine.model.chunk_group import ChunkGroup, attend_to_itself, cut_groups
from lmi_plugins.torch_engine.scheduling.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.scheduling.kv_cache import PagedCache
from lmi_plugins.torch_engine.scheduling.working_copy import WorkingCopy
from lmi_plugins.torch_engine.sequence import Chunk


class PagedStep(AttentionStep):
    """Where the tokens of one step lie in the cache and what each of them sees: worked out once for all layers."""

    def __init__(
        self, chunks: Items[Chunk], cache: PagedCache, copy: WorkingCopy, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._cache, self._copy = cache, copy
        self._slots = torch.tensor([slot for chunk in chunks for slot in _slots(chunk)], device=device)
        self._groups = [ChunkGroup(group, dtype, device) for group in cut_groups(chunks)]
        # Those that decode come first.
        self._copied = self._groups[0] if copy.follow(self._groups[0]) else None

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        query, key, value = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
        self._cache.write(layer, self._slots, key, value)  # all three: [tokens, heads, size]
        if len(self._groups) == 1:
            return self._attend(self._groups[0], layer, query, key, value, options)[None]
        outputs, start = [], 0
        for group in self._groups:
            part = slice(start, start + group.tokens)
            outputs.append(self._attend(group, layer, query[part], key[part], value[part], options))
            start = part.stop
        return torch.cat(outputs)[None]

    def _attend(
        self,
        group: ChunkGroup,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
    ) -> torch.Tensor:
        if group.sees_only_itself(options):
            return attend_to_itself(query, key, value, options.scale)
        if group is self._copied:
            return group.attend(query, *self._copy.read(layer, key, value), options)
        return group.attend(query, *self._cache.read(layer, group.tables), options)


def _slots(chunk: Chunk) -> list[int]:
    blocks = chunk.sequence.blocks
    return [blocks[i // BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE for i in range(chunk.start, chunk.end)]
