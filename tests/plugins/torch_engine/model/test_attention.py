from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lmi_plugins.torch_engine.cache.kv_cache import LayerShape
from lmi_plugins.torch_engine.model.attention import LayoutProbe, UnsupportedAttention, paged_attention, running


def call(probe: LayoutProbe, layer: int = 0, causal: bool = True, **arguments: Any) -> torch.Tensor:
    module = SimpleNamespace(layer_idx=layer, is_causal=causal)
    query, key, value = torch.zeros(1, 4, 3, 8), torch.zeros(1, 2, 3, 8), torch.zeros(1, 2, 3, 6)
    mask = arguments.pop("attention_mask", None)
    with running(probe):
        return paged_attention(module, query, key, value, mask, **arguments)[0]


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
