"""The attention of one step's batch over the paged cache."""

from collections.abc import Callable
from collections.abc import Sequence as Items

import torch

from lmi_plugins.torch_engine.cache.kv_cache import PagedCache
from lmi_plugins.torch_engine.model.attention import (
    AttentionGroup,
    AttentionOptions,
    AttentionStep,
    attend_to_itself,
    group_chunks,
)
from lmi_plugins.torch_engine.model.state_layers import StateLayer, states_of
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.step_batch import Chunk, StepBatch


class WorkingCopy:
    """A contiguous copy of the decoding sequences' KV cache, with each head's keys and values together.

    It is gathered once, and then updated like the cache, as long as the steps have the same sequences.
    """

    def __init__(self, cache: PagedCache, max_blocks: int, device: torch.device) -> None:
        self._cache = cache
        self._max_blocks = max_blocks
        self._device = device
        self.forget()

    def forget(self) -> None:
        """Drop the copy, because the cache changes without it."""
        self._group: AttentionGroup | None = None
        self._sequences: list[Sequence] = []
        self._width = 0
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # layers gathered so far

    def follow(self, group: AttentionGroup) -> bool:
        """Prepare for this group in the next step; return False if it is not in decode, or does not fit in memory."""
        if not group.decodes or len(group.chunks) * group.width > self._max_blocks:
            self.forget()
            return False
        sequences = [chunk.sequence for chunk in group.chunks]
        if sequences != self._sequences or group.width != self._width:
            self.forget()
            self._sequences, self._width = sequences, group.width
        self._indices = group.token_indices()
        self._group = group
        return True

    def read(self, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the same keys and values as the cache would, given those of the step, [tokens, heads, size]."""
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
    """Return a copy in which the tokens of each head are contiguous."""
    return states.clone(memory_format=torch.contiguous_format)


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
        state_layers: Items[StateLayer] = (),
        begin_adapters: Callable[[Items[Chunk]], None] | None = None,
    ) -> None:
        self._progress = progress
        self._begin_adapters, self._chunks = begin_adapters, batch.chunks
        self._cache, self._copy = cache, copy
        self._slots = torch.tensor(
            [slot for chunk in batch.chunks for slot in _slots(chunk, cache.block_size)], device=device
        )
        self._groups = group_chunks(batch, dtype, device, cache.block_size)
        # Decoding chunks come first.
        self._copied = self._groups[0] if copy.follow(self._groups[0]) else None
        self._states = [
            states_of([chunk.sequence for chunk in group.chunks], state_layers)
            for group in self._groups
            if state_layers
        ]

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

    def mix(self, layer: StateLayer, hidden: torch.Tensor) -> torch.Tensor:
        self._progress()
        outputs = []
        for group, states in zip(self._groups, self._states, strict=True):
            if self._begin_adapters is not None and len(self._groups) > 1:
                self._begin_adapters(group.chunks)
            rows = hidden[0, group.rows].view(len(group.chunks), group.length, -1)
            outputs.append(layer.run(rows, states).flatten(0, 1))
        if self._begin_adapters is not None and len(self._groups) > 1:
            self._begin_adapters(self._chunks)
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
        if group.is_fresh and options.is_plain(group.length):
            return attend_to_itself(query, key, value, options.scale)
        if group is self._copied:
            return group.attend(query, *self._copy.read(layer, key, value), options)
        return group.attend(query, *self._cache.read(layer, group.block_tables), options)


def _slots(chunk: Chunk, block_size: int) -> list[int]:
    """Return the cache slot of each of the chunk's tokens: block * block size + offset."""
    blocks = chunk.sequence.block_table
    return [blocks[i // block_size] * block_size + i % block_size for i in range(chunk.start, chunk.end)]
