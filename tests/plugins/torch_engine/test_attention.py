from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lmi_core.token_stream import TokenStream
from lmi_core.tokenizer import Detokenizer
from lmi_plugins.torch_engine.attention import (
    AttentionOptions,
    LayoutProbe,
    PagedStep,
    UnsupportedAttention,
    paged_attention,
)
from lmi_plugins.torch_engine.block_pool import BlockPool
from lmi_plugins.torch_engine.kv_cache import LayerShape, PagedCache
from lmi_plugins.torch_engine.sequence import Chunk, Sequence
from tests.plugins.torch_engine.tiny_models import request

HEADS, KEY_HEADS, SIZE, VALUE_SIZE = 4, 2, 8, 6
CPU = torch.device("cpu")
SINKS = torch.tensor([0.5, -1.0, 2.0, 0.0])


class NoText(Detokenizer):
    def step(self, token_id: int) -> str:
        return ""


def expected(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions) -> torch.Tensor:
    """Attention spelled out, over one whole sequence; all: [tokens, heads, size]."""
    length, sharing = len(query), HEADS // KEY_HEADS
    key, value = key.repeat_interleave(sharing, 1), value.repeat_interleave(sharing, 1)
    logits = torch.einsum("qhd,khd->hqk", query, key) * (options.scale or SIZE**-0.5)
    if options.softcap is not None:
        logits = torch.tanh(logits / options.softcap) * options.softcap
    distance = torch.arange(length)[:, None] - torch.arange(length)
    hidden = distance < 0 if options.window is None else (distance < 0) | (distance >= options.window)
    weights = logits.masked_fill(hidden, float("-inf")).exp()
    total = weights.sum(-1, keepdim=True)
    if options.sinks is not None:
        total = total + options.sinks.exp()[:, None, None]
    return torch.einsum("hqk,khd->qhd", weights / total, value)


LENGTHS = (40, 23, 3)
# What each step computes, those of a single token first: the sequence, from where, to where.
STEPS = [[(0, 0, 18), (1, 0, 22)], [(1, 22, 23), (0, 18, 39), (2, 0, 3)], [(0, 39, 40)]]


@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.parametrize("window", [None, 1, 7])
@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("sinks", [None, SINKS])
def test_chunks_attend_as_whole_sequences_do(
    scale: float | None, window: int | None, softcap: float | None, sinks: torch.Tensor | None
) -> None:
    torch.manual_seed(0)
    options = AttentionOptions(scale, window, softcap, sinks)
    pool, cache = BlockPool(20), PagedCache({5: LayerShape(KEY_HEADS, SIZE, VALUE_SIZE)}, 20, torch.float32, CPU)
    sequences = [Sequence.of(request("a", [2] * length), 1000, TokenStream(NoText())) for length in LENGTHS]
    for sequence in sequences:
        cache.clear(torch.tensor(pool.extend(sequence.blocks, len(sequence.token_ids))))
    queries, keys, values = (
        [torch.randn(length, heads, size) for length in LENGTHS]
        for heads, size in ((HEADS, SIZE), (KEY_HEADS, SIZE), (KEY_HEADS, VALUE_SIZE))
    )
    whole = [expected(*states, options) for states in zip(queries, keys, values, strict=True)]
    for step in STEPS:
        chunks = [Chunk(sequences[place], start, end) for place, start, end in step]
        query, key, value, wanted = (
            torch.cat([states[place][start:end] for place, start, end in step])
            for states in (queries, keys, values, whole)
        )
        packed = [states.transpose(0, 1)[None] for states in (query, key, value)]
        output = PagedStep(chunks, cache, torch.float32, CPU).attend(5, packed[0], packed[1], packed[2], options)
        assert output.shape == (1, *wanted.shape)
        assert torch.allclose(output[0], wanted, atol=1e-5)


def call(probe: LayoutProbe, layer: int = 0, causal: bool = True, **arguments: Any) -> torch.Tensor:
    module = SimpleNamespace(layer_idx=layer, is_causal=causal)
    query, key, value = torch.zeros(1, 4, 3, 8), torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 6)
    mask = arguments.pop("attention_mask", None)
    return paged_attention(module, query, key, value, mask, paged_step=probe, **arguments)[0]


def test_probe_learns_what_layers_keep() -> None:
    probe = LayoutProbe()
    assert call(probe, sliding_window=9, dropout=0.0).shape == (1, 3, 4, 6)
    call(probe, layer=2)
    assert probe.shapes == {0: LayerShape(2, 8, 6), 2: LayerShape(2, 8, 6)}
    assert probe.windows == {0: 9, 2: None}


def test_what_is_not_understood_is_refused() -> None:
    with pytest.raises(UnsupportedAttention, match="indices"):
        call(LayoutProbe(), indices=torch.zeros(1))
    with pytest.raises(UnsupportedAttention):
        call(LayoutProbe(), attention_mask=torch.zeros(1))
    with pytest.raises(UnsupportedAttention):
        call(LayoutProbe(), causal=False)
    probe = LayoutProbe()
    call(probe)
    with pytest.raises(UnsupportedAttention, match="layer 0 attends more than once"):
        call(probe)
