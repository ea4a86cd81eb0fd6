import pytest
import torch

from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.cache.memory import (
    available_memory,
    cache_memory,
    count_blocks,
    count_kept_states,
    memory_within,
)
from lmi_plugins.torch_engine.messages.requests import EngineOptions

CPU = torch.device("cpu")


def count(options: EngineOptions, block_bytes: int, max_length: int, device: torch.device = CPU) -> int:
    return count_blocks(options, block_bytes, max_length, cache_memory(options, device))


def test_as_many_as_full_rows_need_where_memory_allows() -> None:
    options = EngineOptions("model", max_batch_size=4)
    assert count(options, 1, 10 * BLOCK_SIZE) == 40
    assert count(options, available_memory(CPU) // 7, 10 * BLOCK_SIZE) < 40


def test_a_share_of_the_gpu_is_what_the_weights_leave_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (600, 1000))  # free, and all
    options = EngineOptions("model", max_batch_size=4, gpu_memory_utilization=0.75)
    cuda = torch.device("cuda")
    assert count(options, 10, 100 * BLOCK_SIZE, cuda) == 35
    assert memory_within(0.3, cuda) == 0


def test_a_share_of_a_gpu_means_nothing_without_one(caplog: pytest.LogCaptureFixture) -> None:
    options = EngineOptions("model", max_batch_size=4, gpu_memory_utilization=0.75)
    assert count(options, 1, 10 * BLOCK_SIZE) == 40
    assert "option.gpu_memory_utilization has no effect: the model runs on cpu" in caplog.text


def test_memory_asked_for() -> None:
    options = EngineOptions("model", max_batch_size=4, kv_cache_memory=1000)
    assert count(options, 100, 10 * BLOCK_SIZE) == 10
    assert count(options, 0, 10 * BLOCK_SIZE) == 40
    assert count(options, 5000, 10 * BLOCK_SIZE) == 1


def test_a_share_of_what_is_free() -> None:
    assert available_memory(CPU, 0.5) > 1.5 * available_memory(CPU, 0.25)
    small = EngineOptions("model", max_batch_size=10**6, kv_cache_share=0.01)
    large = EngineOptions("model", max_batch_size=10**6, kv_cache_share=0.02)
    assert 1.5 < count(large, 1000, BLOCK_SIZE) / count(small, 1000, BLOCK_SIZE) < 2.5


@pytest.mark.parametrize(("memory", "blocks", "kept"), [(10_000, 88, 4), (2400, 12, 4), (1200, 6, 2), (500, 2, 0)])
def test_states_have_up_to_half_of_the_memory(memory: int, blocks: int, kept: int) -> None:
    """Each sequence has two, and those for later sequences have a third of their memory."""
    options = EngineOptions("model", max_batch_size=4)
    assert count_blocks(options, 100, 1000 * BLOCK_SIZE, memory, state_bytes=100) == blocks
    assert count_kept_states(options, 100, memory) == kept
