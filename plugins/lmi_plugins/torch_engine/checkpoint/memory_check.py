"""The check of whether a model fits into the free memory."""

import torch

from lmi_core.errors.sizes import readable
from lmi_core.inspection.checkpoint import Checkpoint
from lmi_core.inspection.safetensors_header import weight_bytes
from lmi_plugins.torch_engine.cache.memory import free_memory


def too_little_memory(weights: int, cache: int, device: torch.device) -> str | None:
    """Return why weights and KV cache of these sizes do not fit on a device; None if they fit."""
    free = free_memory(device)
    if weights + cache <= free:
        return None
    keys = f" and the KV cache {readable(cache)}" if cache else ""
    where = "in main memory" if device.type == "cpu" else f"on {device}"
    return f"too little memory: the weights need {readable(weights)}{keys}, but {readable(free)} are free {where}"


def least_bytes(checkpoint: Checkpoint) -> int:
    """Return the bytes of the weights in their saved types; 0 if unknown."""
    return sum(map(weight_bytes, checkpoint.weights.values()))
