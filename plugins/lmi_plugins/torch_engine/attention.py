"""Attention over the paged cache, in the form that transformers' models call it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence as Items
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from lmi_plugins.torch_engine.block_pool import BLOCK_SIZE, blocks_for
from lmi_plugins.torch_engine.kv_cache import LayerShape, PagedCache
from lmi_plugins.torch_engine.sequence import Chunk

MOST_TOGETHER = 16  # tokens of a chunk, for several to be attended to in one call
NAME = "lmi_paged"  # as `attn_implementation`


class AttentionOptions(NamedTuple):
    """How one layer attends."""

    scale: float | None
    window: int | None  # a token sees so many tokens, itself among them
    softcap: float | None
    sinks: torch.Tensor | None  # [heads], a logit beside those of the keys


class AttentionStep(ABC):
    """Does the attention of one forward pass; each layer calls it in turn."""

    @abstractmethod
    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        """query, key, value: [1, heads, tokens, size]; gives [1, tokens, heads, size of a value]."""


class UnsupportedAttention(Exception):
    """A layer attends in a way that the paged cache cannot serve."""


def paged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged_step: AttentionStep,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What a model calls where `attn_implementation` is `lmi_paged`; the step comes down from the model's arguments."""
    unknown = [name for name, argument in kwargs.items() if isinstance(argument, torch.Tensor)]
    if unknown or attention_mask is not None or not getattr(module, "is_causal", True):
        raise UnsupportedAttention(f"{type(module).__name__} attends in its own way {unknown}")
    options = AttentionOptions(scaling, sliding_window, softcap, s_aux)
    return paged_step.attend(module.layer_idx, query, key, value, options), None


class LayoutProbe(AttentionStep):
    """Learns from one forward pass what each layer keeps of a token."""

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}
        self.windows: dict[int, int | None] = {}

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        if layer in self.shapes:
            raise UnsupportedAttention(f"layer {layer} attends more than once")
        self.shapes[layer] = LayerShape(key.shape[1], key.shape[3], value.shape[3])
        self.windows[layer] = options.window
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3])


class PagedStep(AttentionStep):
    """Where the tokens of one step lie in the cache and what each of them sees: worked out once for all layers."""

    def __init__(self, chunks: Items[Chunk], cache: PagedCache, dtype: torch.dtype, device: torch.device) -> None:
        self._cache = cache
        self._slots = torch.tensor([slot for chunk in chunks for slot in _slots(chunk)], device=device)
        self._groups = [ChunkGroup(group, dtype, device) for group in _groups(chunks)]

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        query, key, value = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
        self._cache.write(layer, self._slots, key, value)  # all three: [tokens, heads, size]
        outputs, start = [], 0
        for group in self._groups:
            part = slice(start, start + group.tokens)
            if group.sees_only_itself(options):
                outputs.append(_attend_to_itself(query[part], key[part], value[part], options.scale))
            else:
                outputs.append(group.attend(query[part], *self._cache.read(layer, group.tables), options))
            start = part.stop
        return torch.cat(outputs)[None] if len(outputs) > 1 else outputs[0][None]


class ChunkGroup:
    """Chunks of one length, attended to in one call: all that decode, or one prefill."""

    def __init__(self, chunks: Items[Chunk], dtype: torch.dtype, device: torch.device) -> None:
        length = len(chunks[0])
        self.tokens = len(chunks) * length
        self._is_fresh = len(chunks) == 1 and chunks[0].start == 0
        used = [chunk.sequence.blocks[: blocks_for(chunk.end)] for chunk in chunks]
        width = max(map(len, used))
        tables = [blocks + [0] * (width - len(blocks)) for blocks in used]
        self.tables = torch.tensor(tables, device=device)  # [rows, blocks]
        starts = torch.tensor([chunk.start for chunk in chunks], device=device)
        self._positions = starts[:, None] + torch.arange(length, device=device)  # [rows, tokens of a chunk]
        self._dtype = dtype
        self._masks: dict[tuple[int | None, int], torch.Tensor] = {}

    def sees_only_itself(self, options: AttentionOptions) -> bool:
        """Whether causal attention without a mask and without the cache does."""
        whole = options.window is None or options.window >= self.tokens
        return self._is_fresh and whole and options.softcap is None and options.sinks is None

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        """query: [tokens, heads, size]; keys, values: [rows, key heads, context, size].

        The query heads that share a key head count as further tokens of it, so that no key is ever repeated.
        """
        (rows, length), heads, key_heads = self._positions.shape, query.shape[1], keys.shape[1]
        sharing = heads // key_heads
        if length > 1:
            query = query.reshape(rows, length, heads, -1).transpose(1, 2)
        query = query.reshape(rows, key_heads, sharing * length, -1)
        mask = self._mask(options.window, sharing)
        if options.softcap is None and options.sinks is None:
            output = scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=options.scale)
        else:
            output = _attend_step_by_step(query, keys, values, mask, options)
        if length > 1:
            output = output.reshape(rows, heads, length, -1).transpose(1, 2)
        return output.reshape(rows * length, heads, -1)

    def _mask(self, window: int | None, sharing: int) -> torch.Tensor:
        """What to add to the attention's logits: [rows, 1, sharing * tokens of a chunk, context]."""
        mask = self._masks.get((window, sharing))
        if mask is None:
            context = torch.arange(self.tables.shape[1] * BLOCK_SIZE, device=self.tables.device)
            positions = self._positions.repeat(1, sharing)[..., None]
            hidden = context > positions
            if window is not None:
                hidden |= context <= positions - window
            mask = torch.zeros(hidden.shape, dtype=self._dtype, device=hidden.device)
            mask = mask.masked_fill_(hidden, float("-inf"))[:, None]
            self._masks[window, sharing] = mask
        return mask


def _groups(chunks: Items[Chunk]) -> list[list[Chunk]]:
    """Those that decode, with as many drafted tokens, together; prompts, whose contexts differ more, each alone."""
    groups: list[list[Chunk]] = []
    for chunk in chunks:
        if groups and len(chunk) == len(groups[-1][0]) <= MOST_TOGETHER:
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
    return groups


def _slots(chunk: Chunk) -> list[int]:
    blocks = chunk.sequence.blocks
    return [blocks[i // BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE for i in range(chunk.start, chunk.end)]


def _attend_to_itself(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None) -> torch.Tensor:
    """A prompt's first chunk sees nothing but itself. All: [tokens, heads, size]."""
    query, key, value = (states.transpose(0, 1)[None] for states in (query, key, value))
    sharing = query.shape[1] != key.shape[1]
    output = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=sharing)
    return output[0].transpose(0, 1)


def _attend_step_by_step(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, options: AttentionOptions
) -> torch.Tensor:
    """With what `scaled_dot_product_attention` has no argument for: a soft cap on the logits, and sinks."""
    scale = query.shape[-1] ** -0.5 if options.scale is None else options.scale
    logits = query @ keys.transpose(2, 3) * scale  # [rows, key heads, sharing * length, context]
    if options.softcap is not None:
        logits = torch.tanh(logits / options.softcap) * options.softcap
    logits = (logits + mask).float()
    if options.sinks is None:
        weights = logits.softmax(-1)
    else:
        sinks = options.sinks.float().view(1, keys.shape[1], -1, 1)  # [1, key heads, sharing, 1]
        sinks = sinks.repeat_interleave(query.shape[2] // sinks.shape[2], 2).expand(query.shape[0], -1, -1, -1)
        weights = torch.cat([logits, sinks], -1).softmax(-1)[..., :-1]
    return weights.to(values.dtype) @ values
