"""vLLM's faults with adapters on CPUs: there before they are mended."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.lora.ops.torch_ops import lora_ops
from vllm.lora.punica_wrapper import punica_cpu

from lmi_plugins.vllm_engine.adapters.cpu_adapters import mend_adapters


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo a test's changes to vLLM after it."""
    monkeypatch.setattr(punica_cpu, "bgmv_shrink", punica_cpu.bgmv_shrink)
    monkeypatch.setattr(lora_ops, "bgmv_shrink", lora_ops.bgmv_shrink)
    wrapper: Any = punica_cpu.PunicaWrapperCPU
    monkeypatch.setattr(wrapper, "add_lora_logits", wrapper.add_lora_logits)


def add_logits(rows: int, indices: list[int]) -> list[list[float]]:
    """Return the logits of rows after the change by the second adapter of two, which adds 3."""
    logits = torch.zeros(rows, 2)
    weights = torch.tensor([1.0, 3.0]).view(2, 1, 1, 1)
    wrapper: Any = SimpleNamespace(sampler_indices=torch.tensor(indices))
    add: Any = punica_cpu.PunicaWrapperCPU.add_lora_logits
    add(wrapper, logits, torch.ones(rows, 1), weights, torch.ones(2, 1, 2, 1), 1.0)
    return [list(map(float, row)) for row in logits]


@pytest.mark.usefixtures("undone")
def test_a_token_without_an_adapter_gets_the_last_ones_change_until_that_is_mended() -> None:
    """Fails when vLLM has mended it."""
    assert add_logits(3, [1, -1, 0]) == [[3, 3], [3, 3], [1, 1]]
    mend_adapters()
    assert add_logits(3, [1, -1, 0]) == [[3, 3], [0, 0], [1, 1]]


@pytest.mark.usefixtures("undone")
def test_rows_of_a_prompt_end_the_engine_until_that_is_mended() -> None:
    """Fails when vLLM has mended it."""
    with pytest.raises(RuntimeError):
        add_logits(3, [-1, -1])
    mend_adapters()
    assert add_logits(3, [-1, -1]) == [[0, 0]] * 3
    assert add_logits(3, [1]) == [[3, 3]] * 3
