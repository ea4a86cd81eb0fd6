"""The attention of chunks that are attended to in one call."""

from collections.abc import Sequence as Items
from functools import cached_property

import torch
from torch.nn.functional import scaled_dot_product_attention

from lmi_plugins.torch_engine.model.attention import AttentionOptions
from lmi_plugins.torch_engine.scheduling.block_pool import BLOCK_SIZE, blocks_for
from lmi_plugins.torch_engine.sequence import Chunk

MOST_TOGETHER = 16  # tokens of a chunk, for several to be attended to in one call


class ChunkGroup:
    """Chunks of one length, attended to in one call: all that decode, or one prefill."""

    def __init__(self, chunks: Items[Chunk], dtype: torch.dtype, device: torch.device) -> None:
        self.chunks = chunks
        self.length = len(chunks[0])
        self.tokens = len(chunks) * self.length
        self.width = max(blocks_for(chunk.end) for chunk in chunks)  # blocks of the longest context
        starts = torch.tensor([chunk.start for chunk in chunks], device=device)
        self._positions = starts[:, None]  # [rows, tokens of a chunk]
        if self.length > 1:
            self._positions = self._positions + torch.arange(self.length, device=device)
        self._dtype = dtype
        self._masks: dict[tuple[int | None, int], torch.Tensor] = {}

    @cached_property
    def tables(self) -> torch.Tensor:
        """[rows, blocks]; where the context ends earlier, block 0."""
        used = [chunk.sequence.blocks[: blocks_for(chunk.end)] for chunk in self.chunks]
        tables = [blocks + [0] * (self.width - len(blocks)) for blocks in used]
        return torch.tensor(tables, device=self._positions.device)

    @property
    def decodes(self) -> bool:
        return self.length <= MOST_TOGETHER and all(chunk.start for chunk in self.chunks)

    def sees_only_itself(self, options: AttentionOptions) -> bool:
        """Whether causal attention without a mask and without the cache does."""
        whole = options.window is None or options.window >= self.tokens
        is_fresh = len(self.chunks) == 1 and self.chunks[0].start == 0
        return is_fresh and whole and options.softcap is None and options.sinks is None

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
        # Float32 products over what lies together are faster on the CPU.
        spelled_out = query.dtype == torch.float32 and query.device.type == "cpu" and keys.is_contiguous()
        if options.softcap is None and options.sinks is None and not spelled_out:
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
            context = torch.arange(self.width * BLOCK_SIZE, device=self._positions.device)
            positions = self._positions.repeat(1, sharing)[..., None]
            hidden = context > positions
            if window is not None:
                hidden |= context <= positions - window
            mask = torch.zeros(hidden.shape, dtype=self._dtype, device=hidden.device)
            mask = mask.masked_fill_(hidden, float("-inf"))[:, None]
            self._masks[window, sharing] = mask
        return mask


def cut_groups(chunks: Items[Chunk]) -> list[list[Chunk]]:
    """Those that decode, with as many drafted tokens, together; prompts, whose contexts differ more, each alone."""
    groups: list[list[Chunk]] = []
    for chunk in chunks:
        if groups and len(chunk) == len(groups[-1][0]) <= MOST_TOGETHER:
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
    return groups


def attend_to_itself(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None) -> torch.Tensor:
    """A prompt's first chunk sees nothing but itself. All: [tokens, heads, size]."""
    query, key, value = (states.transpose(0, 1)[None] for states in (query, key, value))
    sharing = query.shape[1] != key.shape[1]
    output = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=sharing)
    return output[0].transpose(0, 1)


def _attend_step_by_step(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, options: AttentionOptions
) -> torch.Tensor:
    """Also with what `scaled_dot_product_attention` has no argument for: a soft cap on the logits, and sinks."""
    scale = query.shape[-1] ** -0.5 if options.scale is None else options.scale
    logits = query * scale @ keys.transpose(2, 3)  # [rows, key heads, sharing * length, context]
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
