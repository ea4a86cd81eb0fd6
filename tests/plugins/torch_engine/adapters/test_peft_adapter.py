"""Adapters read from files, and files that are refused."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from lmi_core.errors import InvalidAdapter
from lmi_plugins.torch_engine.adapters.peft_adapter import read_directory, read_tensors, read_weights
from lmi_plugins.torch_engine.messages.requests import AdapterTensors, TensorData

NAME = "base_model.model.layers.0.q_proj.lora_"
CONFIG = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["q_proj"]}


def tensors(rank: int = 2) -> dict[str, torch.Tensor]:
    return {f"{NAME}A.weight": torch.ones(rank, 3), f"{NAME}B.weight": torch.ones(5, rank)}


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({}, 3.0),
        ({"use_rslora": True}, 6 / math.sqrt(2)),
        ({"alpha_pattern": {"q_proj": 1}}, 0.5),
        ({"alpha_pattern": {"k_proj": 1, r"layers\.\d+\.q_proj": 4}}, 2.0),
        ({"alpha_pattern": {r"^layers\.\d+\.q_proj": 4}}, 2.0),
        ({"alpha_pattern": {"^q_proj": 4}}, 3.0),  # another module, which is in no other one
        ({"r": 9, "rank_pattern": {"q_proj": 2}}, 3.0),
        ({"target_modules": "all-linear", "fan_in_fan_out": True, "modules_to_save": None, "bias": "none"}, 3.0),
    ],
)
def test_scale(config: dict[str, Any], scale: float) -> None:
    ((module, pair),) = read_weights(tensors(), CONFIG | config).items()
    assert module == "layers.0.q_proj"
    assert (pair.down.shape, pair.up.shape, pair.rank) == ((3, 2), (2, 5), 2)
    assert pair.up == pytest.approx(torch.full((2, 5), scale))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type must be LORA. Given: IA3"),
        ({"use_dora": True}, "LoRA with use_dora is not supported"),
        ({"context_length": 32768}, "LoRA with context_length is not supported"),
        ({"modules_to_save": ["lm_head"]}, r"LoRA with modules_to_save is not supported. Given: \['lm_head'\]"),
        ({"bias": "all"}, "LoRA with biases is not supported. Given: bias=all"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights=pissa_niter_4 changed the model's own weights"),
        ({"r": 0}, "r must be a number above 0. Given: 0"),
        ({"lora_alpha": "x"}, "lora_alpha must be a number above 0. Given: x"),
        ({"r": 3}, "the configuration says rank 3, but the weights have rank 2"),
        (
            {"target_modules": ["q_proj", "v_proj"]},
            "target_modules has v_proj, but the adapter has no weights for such",
        ),
    ],
)
def test_refused_configurations(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidAdapter, match=message):
        read_weights(tensors(), CONFIG | config)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({f"{NAME}B.bias": torch.ones(5)}, "lora_B.bias is not a LoRA matrix of a linear layer"),
        (
            {"base_model.model.wte.lora_embedding_A": torch.ones(2, 3)},
            "LoRA on embeddings is not supported on the torch engine",
        ),
        ({"base_model.model.q_proj.lora_A.weight": torch.ones(2, 3)}, "q_proj has no matrix lora_B"),
        ({f"{NAME}B.weight": torch.ones(5, 3)}, r"must share their rank. Given: \[2, 3\] and \[5, 3\]"),
        ({f"{NAME}B.weight": torch.ones(5)}, r"Given: \[2, 3\] and \[5\]"),
    ],
)
def test_refused_tensors(changed: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(InvalidAdapter, match=message):
        read_weights(tensors() | changed, CONFIG)


def test_no_tensors() -> None:
    with pytest.raises(InvalidAdapter, match="the adapter has no weights"):
        read_weights({}, None)


def test_bytes_that_are_not_as_many_as_the_shape_says() -> None:
    source = AdapterTensors({f"{NAME}A.weight": TensorData("float16", [2, 3], bytes(11))})
    with pytest.raises(InvalidAdapter, match=r"lora_A.weight of shape \[2, 3\] and type float16 must have 12 bytes"):
        read_tensors(source)


def test_directories(tmp_path: Path) -> None:
    with pytest.raises(InvalidAdapter, match=r"there is no .*adapter_config\.json"):
        read_directory(tmp_path)
    with pytest.raises(InvalidAdapter, match=r"the adapter cannot be read: .*too long"):
        read_directory(tmp_path / ("name" * 100))
    (tmp_path / "adapter_config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(InvalidAdapter, match="does not contain a LoRA adapter in PEFT's format"):
        read_directory(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"broken")
    with pytest.raises(InvalidAdapter, match="the adapter cannot be read"):
        read_directory(tmp_path)
    save_file(tensors(), tmp_path / "adapter_model.safetensors")
    assert list(read_directory(tmp_path)) == ["layers.0.q_proj"]
    for broken in ("{", "[]"):
        (tmp_path / "adapter_config.json").write_text(broken)
        with pytest.raises(InvalidAdapter):
            read_directory(tmp_path)
