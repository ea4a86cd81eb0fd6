"""Works out how much memory the cache gets."""

import logging
from pathlib import Path

import psutil
import torch

from lmi_plugins.torch_engine.cache.block_pool import blocks_for
from lmi_plugins.torch_engine.worker.messages import EngineOptions

logger = logging.getLogger(__name__)

CPU_SHARE = 0.25  # of the memory that is available
CUDA_SHARE = 0.9  # of what is free once the model is loaded
CONTROL_GROUP = Path("/sys/fs/cgroup")  # of version 2


def count_blocks(options: EngineOptions, block_bytes: int, max_length: int, device: torch.device) -> int:
    """Return as many blocks as all rows could need at full length, or as many as the memory has room for."""
    needed = options.max_batch_size * blocks_for(max_length)
    memory = options.kv_cache_memory
    if memory is None and options.gpu_memory_utilization is not None:
        memory = memory_within(options.gpu_memory_utilization, device)
    if memory is None:
        memory = available_memory(device, options.kv_cache_share)
    return max(1, min(needed, memory // max(block_bytes, 1)))


def memory_within(utilization: float, device: torch.device) -> int | None:
    """Return the bytes that the cache may take of this share of the GPU's memory, which the weights are in too."""
    if device.type != "cuda":
        logger.warning("option.gpu_memory_utilization has no effect: the model runs on %s", device.type)
        return None
    free, total = torch.cuda.mem_get_info(device)
    return max(0, int(total * utilization) - (total - free))


def available_memory(device: torch.device, share: float | None = None) -> int:
    """Return the bytes that the cache may take of the memory that is free now."""
    return int(free_memory(device) * (share or (CUDA_SHARE if device.type == "cuda" else CPU_SHARE)))


def free_memory(device: torch.device) -> int:
    """Return the bytes that this process can still take: of the device, or of main memory within its container."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free
    limit, used = _control_group("max"), _control_group("current")
    available = int(psutil.virtual_memory().available)
    return available if limit is None or used is None else min(available, max(0, limit - used + _reclaimable()))


def _reclaimable() -> int:
    """Return the bytes of the control group that hold files, such as a model just downloaded, and that give way."""
    try:
        facts = (CONTROL_GROUP / "memory.stat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in facts.splitlines() if line.startswith("inactive_file ")), 0)


def _control_group(name: str) -> int | None:
    """Return a number of the control group that the container is, if there is one and it has a limit."""
    try:
        return int((CONTROL_GROUP / f"memory.{name}").read_text())
    except (OSError, ValueError):  # ValueError: "max", which is no limit
        return None
