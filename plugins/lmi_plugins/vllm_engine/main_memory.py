"""The share of main memory for CPU builds of vLLM, whose default is nearly all of it."""

import logging
import os
from collections.abc import Mapping

import psutil

logger = logging.getLogger(__name__)

DEFAULT = 0.92  # vLLM's default
MARGIN = 0.9  # of free memory: the server and vLLM's processes also take some while they start
ROOM = 0.03  # of all memory, for the same reason, with the default
OWN_SETTINGS = ("gpu_memory_utilization", "kv_cache_memory_bytes")
VARIABLE = "VLLM_CPU_KVCACHE_SPACE"


def with_fitting_share(arguments: Mapping[str, str], part: float) -> Mapping[str, str]:
    """Return the arguments with this part of a free share of main memory if vLLM's default is not free."""
    share = fitting_share(arguments)
    if share is None:
        return arguments
    logger.info(
        "vLLM takes %.0f%% of main memory, because its default of %.0f%% is not free", share * part * 100, DEFAULT * 100
    )
    return {**arguments, "gpu_memory_utilization": str(share * part)}


def fitting_share(arguments: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> float | None:
    """Return a free share of main memory if vLLM's default is not free; None keeps vLLM's default."""
    if VARIABLE in environment or any(name in arguments for name in OWN_SETTINGS):
        return None
    memory = psutil.virtual_memory()
    free = memory.available / memory.total
    return None if free > DEFAULT + ROOM else int(free * MARGIN * 100) / 100
