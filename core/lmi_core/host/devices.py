"""The number of GPUs of this host, without importing an engine."""

import os
from collections.abc import Mapping
from pathlib import Path

ALL = "*"
CPU = "cpu"
FORM = "must be *, or cpu, or GPUs such as 0, gpu0 or cuda:0, separated by ;"


def parse_devices(text: str) -> tuple[str, ...]:
    """Return `cpu`, or the numbers of GPUs; empty for all devices. Raise ValueError for an unknown name."""
    names = [name.strip().lower() for name in text.split(";") if name.strip()]
    if names in ([], [ALL]):
        return ()
    devices = tuple(dict.fromkeys(_device(name) for name in names))
    if CPU in devices and len(devices) > 1:
        raise ValueError(f"{FORM}; the CPU cannot be used together with GPUs")
    return devices


def _device(name: str) -> str:
    if name in (CPU, "-1"):
        return CPU
    number = next((name.removeprefix(prefix) for prefix in ("cuda:", "gpu") if name.startswith(prefix)), name)
    if not (number.isascii() and number.isdecimal() and len(number) <= 4):
        raise ValueError(FORM)
    return str(int(number))


NVIDIA_DEVICES = "dev/nvidia[0-9]*"
AMD_NODES = "sys/class/kfd/kfd/topology/nodes/*/gpu_id"
# Device files of GPUs that are not counted here: those of WSL and of Nvidia's Jetson boards.
UNCOUNTED = ("dev/dxg", "dev/nvhost-ctrl*", "dev/nvgpu*")
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def visible_gpus(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int:
    """Count the GPUs visible to a process with this environment; 0 if unknown."""
    nvidia = len(list(root.glob(NVIDIA_DEVICES)))
    present = nvidia or sum(path.read_text().strip() not in ("", "0") for path in root.glob(AMD_NODES))
    chosen = next((environment[name] for name in VISIBLE if name in environment), None)
    return present if chosen is None else min(present, _count(chosen))


def count_gpus(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> int | None:
    """Count the GPUs as `visible_gpus` does; None if the host may have others."""
    counted = visible_gpus(environment, root)
    hidden = any(name in environment for name in VISIBLE)
    uncounted = any(next(root.glob(pattern), None) for pattern in UNCOUNTED)
    return None if counted == 0 and uncounted and not hidden else counted


def describe_gpus(gpus: int) -> str:
    """Describe a host's GPUs, for example `this host has 2 GPUs`."""
    if gpus == 0:
        return "this host has no GPU"
    return "this host has 1 GPU" if gpus == 1 else f"this host has {gpus} GPUs"


def _count(devices: str) -> int:
    """Count the listed devices as CUDA does, which ignores the first invalid one, such as -1, and all after it."""
    count = 0
    for device in devices.split(","):
        if not device.strip() or device.strip().startswith("-"):
            break
        count += 1
    return count
