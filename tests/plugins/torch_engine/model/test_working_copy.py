from collections import Counter

import pytest
import torch

from lmi_core.texts.token_stream import TokenStream
from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE, BlockPool
from lmi_plugins.torch_engine.cache.kv_cache import LayerShape, PagedCache
from lmi_plugins.torch_engine.model.attention_group import AttentionGroup
from lmi_plugins.torch_engine.model.working_copy import WorkingCopy
from lmi_plugins.torch_engine.sequences.chunk import Chunk
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from lmi_plugins.torch_engine.sequences.sequence_group import SequenceGroup
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch
from tests.plugins.torch_engine.bare_sequences import NoText
from tests.plugins.torch_engine.tiny_models import request

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
