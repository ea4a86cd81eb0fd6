"""LoRA adapters with random weights in PEFT's format, and models merged with them."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers.pytorch_utils import Conv1D

from lmi_plugins.torch_engine.messages.requests import AdapterTensors
from tests.plugins.torch_engine.tensor_data import to_data
from tests.plugins.torch_engine.tiny_models import reference_model

LLAMA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PREFIX = "base_model.model."


def save_adapter(
    directory: Path,
    model: Any,
    seed: int,
    targets: Sequence[str] = LLAMA_TARGETS,
    rank: int = 4,
    alpha: float = 8,
    **config: Any,
) -> Path:
    """Save a random adapter, with weights large enough to change the generated tokens."""
    numbers = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, module in model.named_modules():
        if name.rsplit(".", 1)[-1] in targets:
            ins, outs = shape(module)
            own_rank = config.get("rank_pattern", {}).get(name.rsplit(".", 1)[-1], rank)
            tensors[f"{PREFIX}{name}.lora_A.weight"] = torch.randn(own_rank, ins, generator=numbers) * 0.3
            tensors[f"{PREFIX}{name}.lora_B.weight"] = torch.randn(outs, own_rank, generator=numbers) * 0.3
    directory.mkdir(parents=True, exist_ok=True)
    save_file(tensors, directory / "adapter_model.safetensors")
    known = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": list(targets), "bias": "none"}
    (directory / "adapter_config.json").write_text(json.dumps(known | config))
    return directory


def merged_model(model_directory: Path, adapter: Path) -> Any:
    """Return the model with weights W + scale * B A, computed independently from PEFT's definition."""
    model = reference_model(model_directory)
    config = json.loads((adapter / "adapter_config.json").read_text())
    tensors = load_file(adapter / "adapter_model.safetensors")
    for name, module in model.named_modules():
        down = tensors.get(f"{PREFIX}{name}.lora_A.weight")
        if down is not None:
            rank, alpha = down.shape[0], config["lora_alpha"]
            alpha = config.get("alpha_pattern", {}).get(name.rsplit(".", 1)[-1], alpha)
            scale = alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank
            delta = tensors[f"{PREFIX}{name}.lora_B.weight"] @ down * scale
            module.weight.data += delta.T if config.get("fan_in_fan_out") else delta
    return model


def adapter_tensors(directory: Path) -> AdapterTensors:
    """Return a saved adapter's tensors, as a client sends them."""
    tensors = load_file(directory / "adapter_model.safetensors")
    config = json.loads((directory / "adapter_config.json").read_text())
    return AdapterTensors({name: to_data(tensor) for name, tensor in tensors.items()}, config)


def shape(module: Any) -> tuple[int, int]:
    first, second = module.weight.shape
    return (first, second) if isinstance(module, Conv1D) else (second, first)
