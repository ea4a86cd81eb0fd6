import pytest
import torch
from torch.nn.functional import pad

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.cache.kv_cache import HeadFirstCache, LayerShape, PagedCache

TABLES = torch.tensor([[2, 1], [3, 0]])


def make_cache(shapes: dict[int, LayerShape], blocks: int) -> PagedCache:
    return PagedCache(shapes, blocks, torch.float32, torch.device("cpu"))


def test_cache_gives_back_what_was_written() -> None:
    shapes = {0: LayerShape(2, 4, 4), 3: LayerShape(1, 6, 2)}
    cache = make_cache(shapes, blocks=3)
    cache.clear(torch.tensor([1, 2, 3]))
    slots = torch.tensor([2 * BLOCK_SIZE, 2 * BLOCK_SIZE + 1, BLOCK_SIZE])
    for layer, shape in shapes.items():
        keys, values = torch.randn(3, shape.heads, shape.key_size), torch.randn(3, shape.heads, shape.value_size)
        cache.write(layer, slots, keys, values)
        read_keys, read_values = cache.read(layer, torch.tensor([[2, 1], [3, 0]]))
        assert read_keys.shape == (2, shape.heads, 2 * BLOCK_SIZE, shape.key_size)
        assert torch.equal(read_keys[0, :, [0, 1, BLOCK_SIZE]], keys.transpose(0, 1))
        assert torch.equal(read_values[0, :, [0, 1, BLOCK_SIZE]], values.transpose(0, 1))
        assert read_keys[1].count_nonzero() == 0


def test_cleared_blocks_hold_numbers() -> None:
    cache = make_cache({0: LayerShape(1, 2, 2)}, blocks=2)
    cache.write(0, torch.tensor([BLOCK_SIZE]), torch.full((1, 1, 2), torch.nan), torch.full((1, 1, 2), torch.nan))
    cache.clear(torch.tensor([1, 2]))
    keys, values = cache.read(0, torch.tensor([[0, 1, 2]]))
    assert keys.count_nonzero() == values.count_nonzero() == 0


def test_copied_blocks_are_read_as_they_were_before() -> None:
    cache = make_cache({0: LayerShape(1, 2, 2), 1: LayerShape(1, 4, 2)}, blocks=4)
    cache.clear(torch.tensor([1, 2, 3, 4]))
    for layer, size in ((0, 2), (1, 4)):
        for block in (1, 2):
            keys = torch.full((1, 1, size), float(block))
            cache.write(layer, torch.tensor([block * BLOCK_SIZE]), keys, keys[..., :2])
    cache.copy({2: 1, 3: 2})
    for layer in (0, 1):
        for states in cache.read(layer, torch.tensor([[1, 2, 3, 4]])):
            assert states[0, 0, ::BLOCK_SIZE, 0].tolist() == [1, 1, 2, 0]


def test_block_bytes() -> None:
    shapes = {0: LayerShape(2, 4, 4), 1: LayerShape(1, 6, 2)}
    assert PagedCache.block_bytes(shapes, torch.float16) == BLOCK_SIZE * 2 * (16 + 8)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float32])
def test_heads_first(stored: torch.dtype) -> None:
    """Both layouts give back the same; in one, a head's tokens are contiguous in each block, and zeros fill values."""
    shapes = {0: LayerShape(2, 4, 3)}
    assert HeadFirstCache.block_bytes(shapes, stored, 32) == 32 * stored.itemsize * 2 * (4 + 4)
    by_token = PagedCache(shapes, 3, torch.bfloat16, torch.device("cpu"), 32)
    by_head = HeadFirstCache(shapes, 3, torch.bfloat16, stored, 32)
    slots = torch.tensor([*range(64, 96), 33])
    keys, values = (torch.randn(33, 2, size, dtype=torch.bfloat16) for size in (4, 3))
    for cache in (by_token, by_head):
        cache.write(0, slots, keys, values)
        cache.copy({3: 1})
    for each, expected in zip(by_head.read(0, TABLES), by_token.read(0, TABLES), strict=True):
        assert torch.equal(each, expected)
    stored_keys, stored_values = (part[2].view(2, 32, 4) for part in by_head.parts(0))
    assert torch.equal(stored_keys, keys[:32].transpose(0, 1).to(stored))
    assert torch.equal(stored_values, pad(values[:32].transpose(0, 1), (0, 1)).to(stored))
