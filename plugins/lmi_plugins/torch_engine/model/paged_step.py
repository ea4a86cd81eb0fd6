"""The attention of one step's batch over the paged cache."""

from collections.abc import Callable

import torch

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.cache.kv_cache import PagedCache
from lmi_plugins.torch_engine.model.attention import AttentionOptions, AttentionStep
from lmi_plugins.torch_engine.model.attention_group import AttentionGroup, attend_to_itself, cut_groups
from lmi_plugins.torch_engine.model.working_copy import WorkingCopy
from lmi_plugins.torch_engine.sequences.chunk import Chunk
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch


class PagedStep(AttentionStep):
    """The positions of a batch's tokens in the cache and what each attends to, computed once for all layers."""

    def __init__(
        self,
        batch: StepBatch,
        cache: PagedCache,
        copy: WorkingCopy,
        dtype: torch.dtype,
        device: torch.device,
        progress: Callable[[], None],
    ) -> None:
        self._progress = progress
        self._cache, self._copy = cache, copy
        self._slots = torch.tensor([slot for chunk in batch.chunks for slot in _slots(chunk)], device=device)
        self._groups = cut_groups(batch, dtype, device)
        # Those that decode come first.
        self._copied = self._groups[0] if copy.follow(self._groups[0]) else None

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        self._progress()
        query, key, value = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
        self._cache.write(layer, self._slots, key, value)  # all three: [tokens, heads, size]
        if len(self._groups) == 1:
            return self._attend(self._groups[0], layer, query, key, value, options)[None]
        outputs = [
            self._attend(group, layer, query[group.rows], key[group.rows], value[group.rows], options)
            for group in self._groups
        ]
        return torch.cat(outputs)[None]

    def _attend(
        self,
        group: AttentionGroup,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: AttentionOptions,
    ) -> torch.Tensor:
        """Return the attention's output for one group, given its own rows."""
        if group.is_fresh and group.sees_only_itself(options):
            return attend_to_itself(query, key, value, options.scale)
        if group is self._copied:
            return group.attend(query, *self._copy.read(layer, key, value), options)
        return group.attend(query, *self._cache.read(layer, group.block_tables), options)


def _slots(chunk: Chunk) -> list[int]:
    """Return where each of the chunk's tokens lies in the cache: block * BLOCK_SIZE + offset."""
    blocks = chunk.sequence.block_table
    return [blocks[i // BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE for i in range(chunk.start, chunk.end)]
