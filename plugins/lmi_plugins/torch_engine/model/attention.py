"""Attention over the paged cache, for models of transformers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE, blocks_for
from lmi_plugins.torch_engine.cache.kv_cache import LayerShape
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch

NAME = "lmi_paged"  # the value of `attn_implementation`
WINDOWED_BY_MASK = ("PhimoeAttention",)  # modules that leave the sliding window of all layers to their model's mask
MAX_SHARED_LENGTH = 16  # tokens of a chunk; several chunks this short can share one call


class AttentionOptions(NamedTuple):
    """The attention options of one layer."""

    scale: float | None = None
    window: int | None = None  # how many tokens a token attends to, including itself
    softcap: float | None = None
    sinks: torch.Tensor | None = None  # [heads], a logit added to those of the keys
    slopes: torch.Tensor | None = None  # ALiBi's: [heads], added to the logits per position of a key

    def is_plain(self, length: int) -> bool:
        """Return whether the attention is plain and causal for prompts of this length."""
        whole = self.window is None or self.window >= length
        return whole and self.softcap is None and self.sinks is None and self.slopes is None


class AttentionStep(ABC):
    """The attention of one forward pass, which each layer calls in turn."""

    @abstractmethod
    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        """Return the output, [1, tokens, heads, size of a value], given [1, heads, tokens, size] each."""

    def mix(self, layer: Any, hidden: torch.Tensor) -> torch.Tensor:
        """Return the output of a layer with a state, a StateLayer: [1, tokens, hidden], like `hidden`."""
        raise NotImplementedError


_RUNNING: ContextVar[AttentionStep] = ContextVar("_RUNNING")


@contextmanager
def running(step: AttentionStep) -> Iterator[None]:
    """Make the layers of a forward pass call this step, because not all of them receive the model's arguments."""
    token = _RUNNING.set(step)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def current_step() -> AttentionStep:
    return _RUNNING.get()


class UnsupportedAttention(Exception):
    """The paged cache does not support the attention of a layer."""


def paged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention with the running step, for models whose `attn_implementation` is `lmi_paged`."""
    for name, argument in kwargs.items():
        if isinstance(argument, torch.Tensor):
            raise UnsupportedAttention(f"{type(module).__name__} has an unsupported form of attention, with {name}")
    if attention_mask is not None or not getattr(module, "is_causal", True):
        raise UnsupportedAttention(f"{type(module).__name__} has an unsupported form of attention")
    if type(module).__name__ in WINDOWED_BY_MASK:
        sliding_window = module.config.sliding_window
    options = AttentionOptions(scaling, sliding_window, softcap, s_aux)
    # Some models use views of it, because transformers' own functions return it contiguous.
    return _RUNNING.get().attend(module.layer_idx, query, key, value, options).contiguous(), None


class LayoutProbe(AttentionStep):
    """A replacement for attention that records, in one forward pass, the KV sizes and the options of each layer."""

    def __init__(self, *, checks: bool = False) -> None:
        """`checks`: raise UnsupportedAttention for layers that do not support the paged cache."""
        self._checks = checks
        self.shapes: dict[int, LayerShape] = {}
        self.options: dict[int, AttentionOptions] = {}
        self.states: dict[int, Any] = {}  # those of a sequence after its first tokens, by layer: transformers' caches

    @property
    def windows(self) -> dict[int, int | None]:
        return {layer: options.window for layer, options in self.options.items()}

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        if layer in self.shapes:
            raise UnsupportedAttention(f"layer {layer} attends more than once")
        self.shapes[layer] = LayerShape(key.shape[1], key.shape[3], value.shape[3])
        self.options[layer] = options
        # Value of each token itself
        return value.repeat_interleave(query.shape[1] // value.shape[1], 1).transpose(1, 2)

    def mix(self, layer: Any, hidden: torch.Tensor) -> torch.Tensor:
        if self._checks:
            layer.check_rows(hidden)
        output, self.states[layer.index] = layer.try_out(hidden)
        return torch.zeros_like(output)


class AttentionRows:
    """Rows of the same number of tokens with one attention call."""

    def __init__(self, positions: torch.Tensor, width: int, dtype: torch.dtype, block_size: int = BLOCK_SIZE) -> None:
        """Take the positions, [rows, tokens], and the blocks of the longest context."""
        self._positions, self.width, self._dtype, self._block_size = positions, width, dtype, block_size
        self.length = positions.shape[1]
        self._masks: dict[tuple[int | None, int], torch.Tensor] = {}  # by window and number of queries per key head

    def attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        """Return the output, shaped like `query`: [tokens, heads, size]; keys, values: [chunks, key heads, context,
        size].

        Query heads that share a key head are treated as additional tokens, so that keys are never repeated.
        """
        (rows, length), heads, key_heads = self._positions.shape, query.shape[1], keys.shape[1]
        sharing = heads // key_heads
        if length > 1:
            query = query.reshape(rows, length, heads, -1).transpose(1, 2)
        query = query.reshape(rows, key_heads, sharing * length, -1)
        mask = self._masks.get((options.window, sharing))
        if mask is None:
            mask = self._masks[options.window, sharing] = self._mask(options, sharing)
        # On the CPU, float32 products of contiguous data are faster.
        spelled_out = query.dtype == torch.float32 and query.device.type == "cpu" and keys.is_contiguous()
        if options.softcap is None and options.sinks is None and not spelled_out:
            output = scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=options.scale)
        else:
            output = attend_step_by_step(query, keys, values, mask, options)
        if length > 1:
            output = output.reshape(rows, heads, length, -1).transpose(1, 2)
        return output.reshape(rows * length, heads, -1)

    def _mask(self, options: AttentionOptions, sharing: int) -> torch.Tensor:
        """Return the mask to add to the attention's logits: [chunks, 1 or key heads, sharing * tokens, context]."""
        context = torch.arange(self.width * self._block_size, device=self._positions.device)
        positions = self._positions.repeat(1, sharing)[..., None]
        hidden = context > positions
        if options.window is not None:
            hidden |= context <= positions - options.window
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=hidden.device).masked_fill_(hidden, -torch.inf)[
            :, None
        ]
        if options.slopes is None:
            return mask
        slopes = options.slopes.view(-1, sharing).repeat_interleave(self.length, 1)[..., None]
        return mask + (slopes * context).to(self._dtype)


class AttentionGroup(AttentionRows):
    """Consecutive chunks of the same length with one attention call: all in decode, or one prefill."""

    def __init__(
        self,
        batch: StepBatch,
        part: slice,
        dtype: torch.dtype,
        device: torch.device,
        block_size: int = BLOCK_SIZE,
    ) -> None:
        self.chunks = batch.chunks[part]
        rows = batch.token_rows[part]
        self.rows = slice(rows[0].start, rows[-1].stop)  # the batch's tokens
        positions = torch.tensor([chunk.start for chunk in self.chunks], device=device)[:, None]
        if (length := len(self.chunks[0])) > 1:
            positions = positions + torch.arange(length, device=device)
        width = max(blocks_for(chunk.end, block_size) for chunk in self.chunks)
        super().__init__(positions, width, dtype, block_size)
        self.is_fresh = len(self.chunks) == 1 and self.chunks[0].start == 0

    @cached_property
    def block_tables(self) -> torch.Tensor:
        """The block table of each chunk's context, [chunks, blocks], padded with block 0."""
        used = [chunk.sequence.block_table[: blocks_for(chunk.end, self._block_size)] for chunk in self.chunks]
        tables = [blocks + [0] * (self.width - len(blocks)) for blocks in used]
        return torch.tensor(tables, device=self._positions.device)

    @property
    def decodes(self) -> bool:
        """Whether every chunk of the group is in decode, with the same number of draft tokens."""
        return self.length <= MAX_SHARED_LENGTH and all(chunk.start for chunk in self.chunks)

    def token_indices(self) -> tuple[torch.Tensor, ...]:
        """Return two indices of each token: that of its chunk in the group, and its position in the sequence."""
        indices = [index for index in range(len(self.chunks)) for _ in range(self.length)]
        positions = [position for chunk in self.chunks for position in range(chunk.start, chunk.end)]
        return torch.tensor([indices, positions], device=self._positions.device).unbind()


def group_chunks(
    batch: StepBatch, dtype: torch.dtype, device: torch.device, block_size: int = BLOCK_SIZE
) -> list[AttentionGroup]:
    """Group chunks in decode with the same number of drafted tokens; prompts, whose contexts differ more, stay
    single.
    """
    starts: list[int] = []
    for index, chunk in enumerate(batch.chunks):
        if not starts or not len(chunk) == len(batch.chunks[starts[-1]]) <= MAX_SHARED_LENGTH:
            starts.append(index)
    ends = [*starts[1:], len(batch.chunks)]
    return [AttentionGroup(batch, slice(*part), dtype, device, block_size) for part in zip(starts, ends, strict=True)]


def attend_to_itself(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None) -> torch.Tensor:
    """Return causal attention for a prompt's first chunk, which only attends to itself. All: [tokens, heads, size]."""
    query, key, value = (states.transpose(0, 1)[None] for states in (query, key, value))
    sharing = query.shape[1] != key.shape[1]
    output = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=sharing)
    return output[0].transpose(0, 1)


def attend_step_by_step(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, options: AttentionOptions
) -> torch.Tensor:
    """Compute attention with features that `scaled_dot_product_attention` lacks: a soft cap on the logits, and
    sinks.
    """
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
