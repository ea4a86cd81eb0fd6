"""Adapters that change a model's output layer, with which vLLM computes wrong prompt log probs.

It takes the rows of a prompt for those of the batch's sequences: they get no adapter's change, or that of another
request's (https://github.com/vllm-project/vllm/issues/51594, https://github.com/vllm-project/vllm/issues/16668).
"""

from collections.abc import Collection
from pathlib import Path

import torch
from safetensors import safe_open

OUTPUT_LAYER = "lm_head"  # in the names of an adapter's weights, as vLLM looks for it


def changes_output_layer(folder: Path) -> bool:
    """Return whether an adapter changes the output layer."""
    return any(OUTPUT_LAYER in weight for weight in weight_names(folder))


def weight_names(folder: Path) -> Collection[str]:
    """Return the names of an adapter's weights, in the file that vLLM reads."""
    safetensors = folder / "adapter_model.safetensors"
    if safetensors.is_file():
        with safe_open(safetensors, "pt") as weights:
            return list(weights.keys())
    for path in (folder / "adapter_model.bin", folder / "adapter_model.pt"):
        if path.is_file():
            return list(torch.load(path, map_location="meta", weights_only=True))
    return ()
