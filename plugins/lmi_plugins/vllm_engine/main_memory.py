"""The share of main memory for CPU builds of vLLM, whose default is nearly all of it."""

import os
from collections.abc import Mapping

import psutil

DEFAULT = 0.92  # vLLM's default
MARGIN = 0.9  # of free memory: the server and vLLM's processes also take some while they start
ROOM = 0.03  # of all memory, for the same reason, with the default
OWN_SETTINGS = ("gpu_memory_utilization", "kv_cache_memory_bytes")
VARIABLE = "VLLM_CPU_KVCACHE_SPACE"


def fitting_share(arguments: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> float | None:
    """Return a free share of main memory if vLLM's default is not free; None keeps vLLM's default."""
    if VARIABLE in environment or any(name in arguments for name in OWN_SETTINGS):
        return None
    memory = psutil.virtual_memory()
    free = memory.available / memory.total
    return None if free > DEFAULT + ROOM else int(free * MARGIN * 100) / 100
