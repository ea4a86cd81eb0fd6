"""Memory planning: memory is reserved before a model is loaded, and the least recently used models may be unloaded
for it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from lmi_core.configuration.model_source import weights_folder
from lmi_core.configuration.properties import ServerProperties
from lmi_core.errors import OutOfMemory
from lmi_core.errors.sizes import readable
from lmi_core.host.devices import visible_gpus
from lmi_core.host.memory import free_main_memory, gpu_memory
from lmi_core.host.processes import memory_of
from lmi_core.registry.registered_model import ModelState, RegisteredModel
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import ModelPlan

MEGABYTE = 1024 * 1024  # DJLServing's definition
WEIGHTS = ("*.safetensors", "*.bin", "*.pt")  # only the first of these that exists in a folder is loaded
DEGREES = ("tensor_parallel_degree", "pipeline_parallel_degree")
QUANTIZATION = "quantize"
REQUIRED = "required_memory_mb"
WEIGHTS_REASON = "the size of its weights"
ALL, IN_USE = "all", "in use"


class Device(StrEnum):
    """A kind of device; each has its own memory."""

    CPU = "cpu"
    GPU = "gpu"


class Need(NamedTuple):
    """The memory that a model needs on its device, in bytes, and the source of this number as text."""

    device: Device
    size: int
    reason: str
    gpu: int | None = None  # the GPU's number; None: any


NOTHING = Need(Device.CPU, 0, "")
FreeMemory = Callable[[Need], int | None]  # free bytes on the device that is needed; None: unknown


def free_memory(need: Need) -> int | None:
    """Return the free bytes on the device of a need; of several GPUs, those of the fullest one."""
    if need.device is Device.CPU:
        return free_main_memory()
    gpus = [each.free for each in gpu_memory()]
    if need.gpu is not None:
        return gpus[need.gpu] if need.gpu < len(gpus) else None
    return min(gpus, default=None)


def releasable_memory(need: Need, models: Iterable[Model]) -> int:
    """Return the maximum bytes that unloading the unused ones of these models can free on the device of a need.

    These are at least the models' own needs, and at most the memory of all processes except for those of models in use.
    """
    ready = [model for model in models if model.ready]
    needs = [memory_need(model.plan) for model in ready if not model.usage.calls]
    declared = sum(each.size for each in needs if each.device is need.device)
    if need.device is Device.GPU:
        return max([declared, *(each.used for each in gpu_memory() if need.gpu in (None, each.number))])
    in_use = [each for model in ready if model.usage.calls for each in model.runtime.process_ids()]
    held = memory_of({ALL: [os.getpid()], IN_USE: in_use})
    return max(declared, held.get(ALL, 0) - held.get(IN_USE, 0))


def memory_need(plan: ModelPlan) -> Need:
    """Return a model's need according to its keys, or at least the size of its weights; 0 bytes if unknown."""
    device, index = _device(plan)
    required, reserved = _declared_memory(plan.server, device)
    if required is not None:
        size, reason = required * MEGABYTE, REQUIRED
    else:
        size, reason = _weights(plan, device), WEIGHTS_REASON
    if reserved and size:
        size, reason = size + reserved * MEGABYTE, f"{reason} and reserved_memory_mb"
    return Need(device, size, reason, index)


def lacking(name: str, need: Need, free: int | None, planned: int) -> str | None:
    """Return why a model does not fit, as text without advice; None if it fits, or if this is unknown."""
    if free is None or need.size <= free - planned:
        return None
    where = "in main memory" if need.device is Device.CPU else "on the GPU"
    others = f", {readable(planned)} of which are for models that are being loaded" if planned else ""
    return f"model {name} needs {readable(need.size)} ({need.reason}), but {readable(free)} are free {where}{others}"


def _advice(need: Need) -> str:
    if need.reason.startswith(WEIGHTS_REASON):
        return f"unload another model, set evict_models=true, or set {REQUIRED} if it needs less"
    return "unload another model, or set evict_models=true"


def _declared_memory(server: ServerProperties, device: Device) -> tuple[int | None, int]:
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
    """Return the bytes of a model's weights on this host for all its engines, per GPU if there are several."""
    properties: Any = plan.setup.properties
    folder = weights_folder(plan.setup.directory, properties)
    if plan.backend is None or folder is None or getattr(properties, QUANTIZATION, None) or plan.setup.ray_address:
        return 0
    size = _size_of_weights(folder)
    if plan.backend.replicates:
        size *= max(1, plan.setup.replicas.minimum)
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


class MemoryPlanner:
    """A planner of the memory of this host's devices, for models that load."""

    def __init__(self) -> None:
        self.evicts = False  # whether unused models are unloaded to make room for others
        self.free: FreeMemory = free_memory
        self._planned: dict[Model, Need] = {}
        self._loaded = asyncio.Event()  # replaced whenever it is set, which is when a model has loaded or failed

    @asynccontextmanager
    async def reserve(
        self,
        model: Model,
        others: Callable[[], Iterable[RegisteredModel]],
        unload: Callable[[RegisteredModel], Awaitable[bool]],
    ) -> AsyncIterator[None]:
        """Reserve memory for a model that is loaded in the body.

        Raise OutOfMemory if it does not fit. If this depends on other models that are loading, wait for them first.
        """
        need = await asyncio.to_thread(memory_need, model.plan)
        while (why := await self._lacking(model, need)) is not None:
            if self._reserved_memory(model, need):
                await self._loaded.wait()
            elif not self.evicts:
                raise OutOfMemory(f"{why}: {_advice(need)}")
            elif not (await self._can_fit(model, need, [*others()]) and await _unload_one(others(), unload)):
                raise OutOfMemory(f"{why}, and unloading every unused model would not free enough")
        with self.hold(model, need):
            yield

    @contextmanager
    def hold(self, model: Model, need: Need) -> Iterator[None]:
        """Withhold memory, free or not, from all other models while the body loads or unloads this one."""
        self._planned[model] = need
        try:
            yield
        finally:
            self._planned.pop(model, None)
            self._loaded.set()
            self._loaded = asyncio.Event()

    async def _lacking(self, model: Model, need: Need) -> str | None:
        """Return why a model does not fit, as text, measured while no other model finishes loading."""
        while True:
            loaded = self._loaded
            free = await asyncio.to_thread(self.free, need) if need.size else None
            if loaded is self._loaded:  # otherwise, the measurement may not include the loaded model
                return lacking(model.name, need, free, self._reserved_memory(model, need))

    async def _can_fit(self, model: Model, need: Need, others: Sequence[RegisteredModel]) -> bool:
        """Return whether a model might fit if all unused models were unloaded."""
        models = [each.model for each in others if each.model is not None]
        free = await asyncio.to_thread(self.free, need)
        releasable = await asyncio.to_thread(releasable_memory, need, models)
        return free is None or need.size <= free + releasable - self._reserved_memory(model, need)

    def _reserved_memory(self, model: Model, need: Need) -> int:
        """Return the memory on the device of a need that is planned for other models."""
        others = (each for other, each in self._planned.items() if other is not model)
        return sum(each.size for each in others if each.device is need.device)


async def _unload_one(models: Iterable[RegisteredModel], unload: Callable[[RegisteredModel], Awaitable[bool]]) -> bool:
    """Unload the least recently used idle model, and return whether there was one."""
    ready = [(each.model.usage.last, each) for each in models if each.model and each.state is ModelState.READY]
    for _, registered in sorted(ready, key=lambda pair: pair[0]):
        if await unload(registered):
            return True
    return False
