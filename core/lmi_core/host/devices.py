"""The number of GPUs of this host, without importing an engine."""

import os
from collections.abc import Mapping
from pathlib import Path

NVIDIA_DEVICES = "dev/nvidia[0-9]*"
AMD_NODES = "sys/class/kfd/kfd/topology/nodes/*/gpu_id"
# Devices by which GPUs are reached that nothing here counts: of Windows' subsystem, and of Nvidia's boards.
UNCOUNTED = ("dev/dxg", "dev/nvhost-ctrl*", "dev/nvgpu*")
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def visible_gpus(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """Count the GPUs visible to a process with this environment; 0 also where that is unknown."""
    nvidia = len(list(root.glob(NVIDIA_DEVICES)))
    present = nvidia or sum(path.read_text().strip() not in ("", "0") for path in root.glob(AMD_NODES))
    chosen = next((environment[name] for name in VISIBLE if name in environment), None)
    return present if chosen is None else min(present, _count(chosen))


def counted_gpus(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int | None:
    """Count the GPUs as `visible_gpus` does; None where the host may have some that are not counted."""
    counted = visible_gpus(environment, root)
    hidden = any(name in environment for name in VISIBLE)
    uncounted = any(next(root.glob(pattern), None) for pattern in UNCOUNTED)
    return None if counted == 0 and uncounted and not hidden else counted


def in_words(gpus: int) -> str:
    """Return what a host has, such as `this host has 2 GPUs`."""
    if gpus == 0:
        return "this host has no GPU"
    return "this host has 1 GPU" if gpus == 1 else f"this host has {gpus} GPUs"


def _count(devices: str) -> int:
    """Count the listed devices as CUDA does, which ignores all from the first invalid one, such as -1."""
    count = 0
    for device in devices.split(","):
        if not device.strip() or device.strip().startswith("-"):
            break
        count += 1
    return count
