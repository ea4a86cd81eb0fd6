"""Tests that fail when torch removes or changes the operators that `onednn` calls."""

import pytest
import torch
from torch.nn.functional import linear

from lmi_plugins.torch_engine.model import onednn


@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 16, 600])
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_packed_weight_gives_the_same_product(rows: int, with_bias: bool) -> None:
    torch.manual_seed(0)
    input, weight = torch.randn(rows, 24), torch.randn(40, 24)
    bias = torch.randn(40) if with_bias else None
    packed = onednn.pack(weight, bias, 512)
    assert torch.allclose(packed(input), linear(input, weight, bias), atol=1e-5)


def test_tells_which_types_it_multiplies() -> None:
    assert onednn.multiplies(torch.float32), "the builds of torch that this is tested with have oneDNN"
    assert not onednn.multiplies(torch.float64)


def test_without_onednn_nothing_is_asked_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not onednn.multiplies(torch.float32)
    assert not onednn.multiplies(torch.bfloat16)
