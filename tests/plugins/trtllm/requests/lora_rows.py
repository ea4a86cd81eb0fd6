"""Conversion of PEFT's adapters to TensorRT-LLM's tensors, after NVIDIA's description."""

import json
from pathlib import Path
from typing import Any

import numpy
from safetensors.numpy import load_file

MODULE_IDS = {"q_proj": 1, "k_proj": 2, "v_proj": 3, "o_proj": 4, "gate_proj": 5, "down_proj": 6, "up_proj": 7}
PREFIX = "base_model.model."


def lora_tensors(directory: Path, dtype: str = "float32") -> dict[str, Any]:
    """Return `lora_weights` and `lora_config`, with the scale in the B matrix and rows padded with zeros."""
    config = json.loads((directory / "adapter_config.json").read_text())
    tensors = load_file(directory / "adapter_model.safetensors")
    rows, numbers = [], []
    for name, down in tensors.items():
        if not name.endswith(".lora_A.weight"):
            continue
        module = name.removeprefix(PREFIX).removesuffix(".lora_A.weight")
        up = tensors[name.replace("lora_A", "lora_B")] * (config["lora_alpha"] / len(down))
        rows.append(numpy.concatenate([down.ravel(), up.ravel()]))
        layer, kind = module.split(".")[2], module.rsplit(".", 1)[-1]
        numbers.append([MODULE_IDS[kind], int(layer), len(down)])
    return {"lora_weights": padded(rows).astype(dtype), "lora_config": numpy.array(numbers, "int32")}


def padded(rows: list[Any]) -> Any:
    longest = max(len(row) for row in rows)
    return numpy.stack([numpy.pad(row, (0, longest - len(row))) for row in rows])


def task_id(number: int) -> Any:
    return numpy.array([number], "uint64")
