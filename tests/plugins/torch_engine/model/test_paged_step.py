from collections import Counter

import pytest
import torch

from lmi_core.texts.token_stream import TokenStream
from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE, BlockPool
from lmi_plugins.torch_engine.cache.kv_cache import LayerShape, PagedCache
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.model.attention import AttentionGroup, AttentionOptions
from lmi_plugins.torch_engine.model.paged_step import PagedStep, WorkingCopy
from lmi_plugins.torch_engine.sequences.sequence import Sequence, SequenceGroup
from lmi_plugins.torch_engine.sequences.step_batch import Chunk, StepBatch
from tests.plugins.torch_engine.bare_sequences import NoText
from tests.plugins.torch_engine.tiny_models import request, run

HEADS, KEY_HEADS, SIZE, VALUE_SIZE = 4, 2, 8, 6
CPU = torch.device("cpu")
SINKS = torch.tensor([0.5, -1.0, 2.0, 0.0])


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


LENGTHS = (40, 40, 3)
# What each step computes, those of a single token first: the sequence, from where, to where, and how many of the last
# tokens are drafts that are taken back.
STEPS = [
    [(0, 0, 18, 0), (1, 0, 22, 0)],
    [(1, 22, 23, 0), (0, 18, 32, 0), (2, 0, 3, 0)],
    [(0, 32, 33, 0), (1, 23, 24, 0)],
    [(0, 33, 34, 0), (1, 24, 25, 0)],
    [(0, 34, 37, 2), (1, 25, 28, 0)],
    [(0, 35, 36, 0), (1, 28, 29, 0)],
    [(1, 29, 30, 0)],
    [(1, 30, 31, 0), (0, 36, 37, 0)],
    [(1, 31, 34, 0), (0, 37, 40, 0)],
]


@pytest.mark.parametrize("scale", [None, 0.5])
@pytest.mark.parametrize("window", [None, 1, 7])
@pytest.mark.parametrize("softcap", [None, 1.5])
@pytest.mark.parametrize("sinks", [None, SINKS])
@pytest.mark.parametrize("most_copied", [0, 5, 20])
def test_chunks_attend_as_whole_sequences_do(
    scale: float | None, window: int | None, softcap: float | None, sinks: torch.Tensor | None, most_copied: int
) -> None:
    torch.manual_seed(0)
    options = AttentionOptions(scale, window, softcap, sinks)
    pool, cache = BlockPool(20), PagedCache({5: LayerShape(KEY_HEADS, SIZE, VALUE_SIZE)}, 20, torch.float32, CPU)
    copy = WorkingCopy(cache, most_copied, CPU)
    sequences = [Sequence.of(request("a", [2] * length), 1000, TokenStream(NoText())) for length in LENGTHS]
    for sequence in sequences:
        cache.clear(torch.tensor(pool.extend(sequence.block_table, len(sequence.token_ids))))
    queries, keys, values = (
        [torch.randn(length, heads, size) for length in LENGTHS]
        for heads, size in ((HEADS, SIZE), (KEY_HEADS, SIZE), (KEY_HEADS, VALUE_SIZE))
    )
    whole = [expected(*states, options) for states in zip(queries, keys, values, strict=True)]
    for step in STEPS:
        chunks = [Chunk(SequenceGroup(sequences[place]), sequences[place], start, end) for place, start, end, _ in step]
        query, key, value, wanted = (
            torch.cat([states[place][start:end] for place, start, end, _ in step])
            for states in (queries, keys, values, whole)
        )
        kept = torch.cat([torch.arange(end - start) < end - start - taken for _, start, end, taken in step])
        key[~kept], value[~kept] = 9.0, 9.0
        packed = [states.transpose(0, 1)[None] for states in (query, key, value)]
        output = PagedStep(StepBatch(chunks), cache, copy, torch.float32, CPU, lambda: None).attend(
            5, packed[0], packed[1], packed[2], options
        )
        assert output.shape == (1, *wanted.shape)
        assert torch.allclose(output[0][kept], wanted[kept], atol=1e-5)


CPU = torch.device("cpu")
LAYERS = (0, 1)
STATES = torch.ones(2, 1, 2)  # [tokens, heads, size]


class CountingCache(PagedCache):
    def __init__(self, blocks: int) -> None:
        super().__init__({layer: LayerShape(1, 2, 2) for layer in LAYERS}, blocks, torch.float32, CPU)
        self.reads = Counter[int]()

    def read(self, layer: int, tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.reads[layer] += 1
        return super().read(layer, tables)


@pytest.fixture
def cache() -> CountingCache:
    return CountingCache(20)


@pytest.fixture
def sequences() -> list[Sequence]:
    pool = BlockPool(20)
    made = [Sequence.of(request("a", [2] * 40), 1000, TokenStream(NoText())) for _ in range(3)]
    for sequence in made:
        pool.extend(sequence.block_table, 40)
    return made


def group(sequences: list[Sequence], start: int, length: int = 1) -> AttentionGroup:
    chunks = [Chunk(SequenceGroup(sequence), sequence, start, start + length) for sequence in sequences]
    return AttentionGroup(StepBatch(chunks), slice(len(chunks)), torch.float32, CPU)


def step(copy: WorkingCopy, sequences: list[Sequence], start: int) -> None:
    assert copy.follow(group(sequences, start))
    for layer in LAYERS:
        copy.read(layer, STATES, STATES)


def test_the_cache_is_read_once_while_the_same_sequences_decode(
    cache: CountingCache, sequences: list[Sequence]
) -> None:
    copy = WorkingCopy(cache, 20, CPU)
    for start in range(20, 25):
        step(copy, sequences[:2], start)
    assert cache.reads == {0: 1, 1: 1}
    step(copy, sequences[1:], 25)
    assert cache.reads == {0: 2, 1: 2}
    step(copy, sequences[1:], 2 * BLOCK_SIZE)  # in another block
    assert cache.reads == {0: 3, 1: 3}


def test_a_step_over_others_ends_it(cache: CountingCache, sequences: list[Sequence]) -> None:
    copy = WorkingCopy(cache, 20, CPU)
    step(copy, sequences[:2], 20)
    assert not copy.follow(group(sequences[2:], 0, 8))  # a prompt
    step(copy, sequences[:2], 21)
    assert cache.reads == {0: 2, 1: 2}


def test_what_is_too_large_is_not_copied(cache: CountingCache, sequences: list[Sequence]) -> None:
    copy = WorkingCopy(cache, 4, CPU)
    step(copy, sequences[:2], 20)
    assert not copy.follow(group(sequences, 21))
    assert not copy.follow(group(sequences[:2], 2 * BLOCK_SIZE))
    step(copy, sequences[:2], 20)


def test_each_layer_has_its_own(cache: CountingCache, sequences: list[Sequence]) -> None:
    copy = WorkingCopy(cache, 20, CPU)
    step(copy, sequences[:2], 20)
    assert copy.follow(group(sequences[:2], 21))
    kept = [copy.read(layer, STATES * layer, STATES * -layer) for layer in LAYERS]
    for layer, (keys, values) in zip(LAYERS, kept, strict=True):
        assert keys.shape == values.shape == (2, 1, 2 * BLOCK_SIZE, 2)
        assert (keys[:, 0, 21] == layer).all()
        assert (values[:, 0, 21] == -layer).all()
        assert keys.count_nonzero() == values.count_nonzero() == 4 * layer


def test_each_layer_of_a_long_prefill_is_a_sign(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    layers, heard = len(engine.model.model.layers), list[int]()
    monkeypatch.setattr(engine.runner, "progress", lambda: heard.append(1))
    run(engine, request("a", list(range(5, 45)), max_new_tokens=1))
    assert len(heard) >= layers
