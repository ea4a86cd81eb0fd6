import torch

from lmi_plugins.torch_engine.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.memory import available_memory, count_blocks
from lmi_plugins.torch_engine.messages import EngineOptions

CPU = torch.device("cpu")


def test_as_many_as_full_rows_need_where_memory_allows() -> None:
    options = EngineOptions("model", max_batch_size=4)
    assert count_blocks(options, 1, 10 * BLOCK_SIZE, CPU) == 40
    assert count_blocks(options, available_memory(CPU) // 7, 10 * BLOCK_SIZE, CPU) < 40


def test_memory_asked_for() -> None:
    options = EngineOptions("model", max_batch_size=4, kv_cache_memory=1000)
    assert count_blocks(options, 100, 10 * BLOCK_SIZE, CPU) == 10
    assert count_blocks(options, 0, 10 * BLOCK_SIZE, CPU) == 40
    assert count_blocks(options, 5000, 10 * BLOCK_SIZE, CPU) == 1
