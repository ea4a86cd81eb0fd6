"""The number of GPUs of this host, without importing an engine."""

import os
from collections.abc import Mapping
from pathlib import Path

NVIDIA_DEVICES = "dev/nvidia[0-9]*"
AMD_NODES = "sys/class/kfd/kfd/topology/nodes/*/gpu_id"
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def visible_gpus(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """Count the GPUs visible to a process with this environment; 0 also where that is unknown."""
    nvidia = len(list(root.glob(NVIDIA_DEVICES)))
    present = nvidia or sum(path.read_text().strip() not in ("", "0") for path in root.glob(AMD_NODES))
    chosen = next((environment[name] for name in VISIBLE if name in environment), None)
    return present if chosen is None else min(present, _count(chosen))


def _count(devices: str) -> int:
    """Count the listed devices as CUDA does, which ignores all from the first invalid one, such as -1."""
    count = 0
    for device in devices.split(","):
        if not device.strip() or device.strip().startswith("-"):
            break
        count += 1
    return count
