"""The memory that weights and the KV cache get, and whether they fit."""

import logging

import psutil
import torch

from lmi_core.errors.sizes import readable
from lmi_core.host.memory import free_main_memory
from lmi_core.inspection.checkpoint import Checkpoint
from lmi_core.inspection.safetensors_header import weight_bytes
from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE, blocks_for
from lmi_plugins.torch_engine.messages.requests import EngineOptions

logger = logging.getLogger(__name__)

CPU_SHARE = 0.25  # of the available memory
CUDA_SHARE = 0.9  # of the memory that is free once the model is loaded


def cache_memory(options: EngineOptions, device: torch.device) -> int:
    """Return the bytes for the cache, by the options or as far as memory is free."""
    memory = options.kv_cache_memory
    if memory is None and options.gpu_memory_utilization is not None:
        memory = memory_within(options.gpu_memory_utilization, device)
    if memory is None:
        memory = available_memory(device, options.kv_cache_share) // options.replicas_on_device
    return memory


def count_blocks(
    options: EngineOptions,
    block_bytes: int,
    max_length: int,
    memory: int,
    block_size: int = BLOCK_SIZE,
    state_bytes: int = 0,
) -> int:
    """Return the number of blocks that all rows need at full length, or the number that fit in the cache's memory.

    At most half of the free memory is reserved for states, of which each row has `state_bytes`.
    """
    needed = options.max_batch_size * blocks_for(max_length, block_size)
    if options.kv_cache_memory is None:
        # Each sequence has two, because they are copied when the sequences of a step change, and as many are kept.
        memory -= min(3 * state_bytes * options.max_batch_size, memory // 2)
    return max(1, min(needed, memory // max(block_bytes, 1)))


def count_kept_states(options: EngineOptions, state_bytes: int, memory: int) -> int:
    """Return how many states, in a third of the memory for states, are kept for later sequences."""
    return min(options.max_batch_size, memory // 2 // 3 // state_bytes)


def memory_within(utilization: float, device: torch.device) -> int | None:
    """Return the bytes for the cache in this share of the GPU's memory, which includes the weights."""
    if device.type != "cuda":
        logger.warning("option.gpu_memory_utilization has no effect: the model runs on %s", device.type)
        return None
    free, total = torch.cuda.mem_get_info(device)
    return max(0, int(total * utilization) - (total - free))


def available_memory(device: torch.device, share: float | None = None) -> int:
    """Return the bytes for the cache in the memory that is free now."""
    return int(free_memory(device) * (share or (CUDA_SHARE if device.type == "cuda" else CPU_SHARE)))


def free_memory(device: torch.device) -> int:
    """Return the bytes that this process can still allocate on the device, or in main memory within its container."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    known = free_main_memory()
    return int(psutil.virtual_memory().available) if known is None else known


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
