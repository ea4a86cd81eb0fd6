"""The memory that a model needs before it is loaded, beside what is free on its device."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from lmi_core.configuration.model_source import weights_folder
from lmi_core.configuration.properties import ServerProperties
from lmi_core.errors.sizes import in_words
from lmi_core.host.devices import visible_gpus
from lmi_core.host.memory import free_gpu_memory, free_main_memory
from lmi_core.serving.model_plan import ModelPlan

MEGABYTE = 1024 * 1024  # as DJLServing counts them
WEIGHTS = ("*.safetensors", "*.bin", "*.pt")  # the first of these kinds that a folder has is loaded
DEGREES = ("tensor_parallel_degree", "pipeline_parallel_degree")
QUANTIZATION = "quantize"
REQUIRED = "required_memory_mb"
WEIGHTS_REASON = "the size of its weights"


class Device(StrEnum):
    """A kind of device, each with memory of its own."""

    CPU = "cpu"
    GPU = "gpu"


class Need(NamedTuple):
    """The memory that a model needs on its device, in bytes, and in words where the number comes from."""

    device: Device
    size: int
    reason: str
    gpu: int | None = None  # its number; None: any


FreeMemory = Callable[[Need], int | None]  # on the device of a need, in bytes; None: unknown


def free_memory(need: Need) -> int | None:
    """Return the bytes that are free on the device of a need: of several GPUs those of the fullest."""
    if need.device is Device.CPU:
        return free_main_memory()
    gpus = free_gpu_memory()
    if need.gpu is not None:
        return gpus[need.gpu] if need.gpu < len(gpus) else None
    return min(gpus, default=None)


def memory_need(plan: ModelPlan) -> Need:
    """Return what a model needs: what its keys say, otherwise at least its weights; 0 bytes where that is unknown."""
    device, index = _device(plan)
    required, reserved = _declared(plan.server, device)
    if required is not None:
        size, reason = required * MEGABYTE, REQUIRED
    else:
        size, reason = _weights(plan, device), WEIGHTS_REASON
    if reserved and size:
        size, reason = size + reserved * MEGABYTE, f"{reason} and reserved_memory_mb"
    return Need(device, size, reason, index)


def lacking(name: str, need: Need, free: int | None, planned: int) -> str | None:
    """Return in words why a model does not fit; None where it does, or where that is unknown."""
    if free is None or need.size <= free - planned:
        return None
    where = "in main memory" if need.device is Device.CPU else "on the GPU"
    others = f", {in_words(planned)} of which are for models that are being loaded" if planned else ""
    advice = "unload another model, or set evict_models=true"
    if need.reason.startswith(WEIGHTS_REASON):
        advice = f"unload another model, set evict_models=true, or say by {REQUIRED} that it needs less"
    return (
        f"model {name} needs {in_words(need.size)} ({need.reason}), but {in_words(free)} are free {where}{others}: "
        f"{advice}"
    )


def _declared(server: ServerProperties, device: Device) -> tuple[int | None, int]:
    on_gpu = device is Device.GPU
    required, reserved = server.required_memory_mb, server.reserved_memory_mb
    if on_gpu and server.gpu_required_memory_mb is not None:
        required = server.gpu_required_memory_mb
    if on_gpu and server.gpu_reserved_memory_mb is not None:
        reserved = server.gpu_reserved_memory_mb
    return required, reserved or 0


def _device(plan: ModelPlan) -> tuple[Device, int | None]:
    asked = str(getattr(plan.setup.properties, "device", "auto"))
    if asked == "cpu" or visible_gpus() == 0:
        return Device.CPU, None
    _, _, index = asked.partition(":")
    return Device.GPU, int(index) if index.isdecimal() else None


def _weights(plan: ModelPlan, device: Device) -> int:
    """Return the bytes of a model's weights on this host, of which each of several GPUs gets its part."""
    properties: Any = plan.setup.properties
    folder = weights_folder(plan.setup.directory, properties)
    if plan.backend is None or folder is None or getattr(properties, QUANTIZATION, None):
        return 0
    size = _size_of_weights(folder)
    if device is Device.GPU:
        for name in DEGREES:
            degree = getattr(properties, name, None)
            size //= degree if isinstance(degree, int) and degree > 0 else 1
    return size


def _size_of_weights(folder: Path) -> int:
    for pattern in WEIGHTS:
        if found := list(folder.glob(pattern)):
            return sum(path.stat().st_size for path in found)
    return 0
