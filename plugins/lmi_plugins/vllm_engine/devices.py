"""The devices on which the installed vLLM can run; without importing vLLM."""

from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

DEVICES = Path("/dev")
GPU_DEVICES = (DEVICES / "nvidiactl", DEVICES / "kfd")
# Device files of GPUs and other accelerators for all of vLLM's platforms.
ACCELERATORS = ("nvidiactl", "kfd", "dxg", "nvhost-ctrl*", "nvgpu*", "dri/renderD*", "accel*", "vfio/[0-9]*")
PLATFORMS = "vllm.platform_plugins"  # entry points through which vLLM finds further platforms


def is_cpu_build() -> bool:
    """Return whether the installed vLLM is a CPU build; True also without the official package."""
    try:
        return "cpu" in version("vllm")
    except PackageNotFoundError:  # the official package is not installed
        return True


def has_gpu() -> bool:
    """Return whether this host has a GPU on which `option.rolling_batch=auto` selects vLLM."""
    return any(device.exists() for device in GPU_DEVICES)


def lacks_devices() -> bool:
    """Return whether the installed vLLM needs a device, such as a GPU, and this host has none."""
    if is_cpu_build() or has_gpu() or entry_points(group=PLATFORMS):
        return False
    return not any(next(DEVICES.glob(pattern), None) for pattern in ACCELERATORS)
