"""The state and the memory of a server for its console, collected on demand."""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lmi_core.configuration.location import without_secrets
from lmi_core.host.devices import visible_gpus
from lmi_core.host.memory import DeviceMemory, free_main_memory, gpu_memory, total_main_memory
from lmi_core.host.pauses import with_pauses
from lmi_core.host.processes import memory_of
from lmi_core.metrics.model_metrics import CLIENT_LEFT, FAILED, ModelMetrics
from lmi_core.metrics.recent_errors import RecentError
from lmi_core.registry.model_registry import ModelRegistry
from lmi_core.registry.registered_model import ModelState, RegisteredModel
from lmi_handlers.console.answers import Gpu, MainMemory, ShownError, ShownMemory, ShownModel, ShownProgress
from lmi_handlers.management.descriptions import fault_of

SECONDS = 2.0  # for which a reading is reused
SERVER = ""  # stands for the server among the names of models
UNHEALTHY = "unhealthy"  # added to the states of registered models: the model is loaded but does not accept requests
LOADS = (ModelState.FETCHING, ModelState.LOADING)
AT_ONCE = 25  # models, each of which takes a millisecond or two, before requests get a turn


@dataclass(frozen=True, slots=True)
class MemoryRead:
    """One reading of the memory; `by_model` contains the bytes of each model's own processes."""

    main: MainMemory = field(default_factory=lambda: MainMemory(total=None, free=None))
    gpus: tuple[DeviceMemory, ...] = ()
    server: int | None = None
    by_model: Mapping[str, int] = field(default_factory=dict)

    @property
    def shown(self) -> ShownMemory:
        gpus = [Gpu(number=each.number, name=each.name, used=each.used, total=each.total) for each in self.gpus]
        return ShownMemory(main=self.main, gpus=gpus, server=self.server)


class MemoryReader:
    """A reader in another thread, shared by concurrent requests."""

    def __init__(self) -> None:
        self._read = MemoryRead()
        self._at = -float("inf")
        self._reading = asyncio.Lock()

    async def read(self, process_ids: Mapping[str, list[int]]) -> MemoryRead:
        """Return the memory, including that of each model's processes; a recent reading is reused."""
        async with self._reading:
            now = time.monotonic()
            if now - self._at >= SECONDS:
                self._read = await asyncio.to_thread(_look, process_ids)
                self._at = now
        return self._read


def _look(process_ids: Mapping[str, list[int]]) -> MemoryRead:
    gpus = tuple(gpu_memory()) if visible_gpus() else ()
    by_model = memory_of({**process_ids, SERVER: [os.getpid()]})
    main = MainMemory(total=total_main_memory(), free=free_main_memory())
    return MemoryRead(main, gpus, by_model.pop(SERVER, None), by_model)


class ListedVersion(NamedTuple):
    """A version of a model, and whether it is the default."""

    model: RegisteredModel
    is_default: bool

    @property
    def key(self) -> str:
        """A unique name of the version."""
        return f"{self.model.name}\n{self.model.version or ''}"

    @property
    def process_ids(self) -> list[int]:
        """The processes that only run this version."""
        model = self.model.model
        return [] if model is None else list(model.runtime.process_ids())


def registered_models(registry: ModelRegistry) -> list[ListedVersion]:
    """Return every version of every model by name, then removed ones that still finish their requests."""
    found = []
    for name in registry.names:
        versions = registry.versions(name)
        default = versions.default
        found += [ListedVersion(each, each is default) for each in versions]
    return [*found, *(ListedVersion(each, is_default=False) for each in registry.leaving)]


async def describe_models(registered: Sequence[ListedVersion], memory: Mapping[str, int]) -> list[ShownModel]:
    """Describe versions of models; `memory` contains the bytes of their own processes, by key."""
    return [await _describe_model(each, memory.get(each.key)) async for each in with_pauses(registered, AT_ONCE)]


async def _describe_model(registered: ListedVersion, memory: int | None) -> ShownModel:
    """Describe a version of a model; `memory` is the number of bytes of its own processes; None without any."""
    each, model = registered.model, registered.model.model
    state = each.state
    fault = await fault_of(model) if state is ModelState.READY else None
    running, waiting = (0, 0) if model is None else model.sequence_counts
    figures = None if model is None else model.runtime.figures()
    tokens = [] if model is None else list(model.metrics.tokens_so_far().values())
    requests, failed = (0, 0) if model is None else _requests(model.metrics)
    shown = ShownModel(
        modelName=each.name,
        modelUrl=without_secrets(each.registration.url),
        state=UNHEALTHY if fault else state.value,
        default=registered.is_default,
        loadedAtStartup=each.at_startup,
        loadedAt=each.loaded_at,
        running=running,
        waiting=waiting,
        queueSize=0 if model is None else model.admission.maximum,
        promptTokens=sum([counts.prompt for counts in tokens]),
        generatedTokens=sum([counts.generated for counts in tokens]),
        requests=requests,
        failedRequests=failed,
        cacheUsage=None if figures is None else figures.cache_usage,
        restarts=0 if figures is None else figures.restarts,
        workers=[{"processId": process_id} for process_id in registered.process_ids],
        memory=memory,
        adapters=[] if model is None else sorted(model.adapter_folders),
        warnings=[] if model is None else model.warnings,
    )
    if each.version is not None:
        shown["version"] = each.version
    if model is not None:
        shown["backend"] = model.runtime_name
    if (reason := fault or each.failure) is not None:
        shown["reason"] = reason.message
    if state in LOADS and each.progress.what:
        shown["progress"] = ShownProgress(what=str(each.progress), share=each.progress.share)
    return shown


def describe_errors(errors: Iterator[RecentError]) -> list[ShownError]:
    return [
        ShownError(
            number=each.number,
            time=each.time,
            model=each.model,
            requestId=each.request_id,
            path=each.path,
            status=each.status,
            kind=each.kind,
            ofServer=each.is_of_server,
            message=each.message,
            count=each.count,
        )
        for each in errors
    ]


def _requests(metrics: ModelMetrics) -> tuple[int, int]:
    """Return the numbers of finished and of failed requests."""
    failed = [
        count
        for outcome, count in metrics.outcomes.items()
        if outcome.status.isdecimal() and int(outcome.status) >= FAILED and int(outcome.status) != CLIENT_LEFT
    ]
    return sum(metrics.outcomes.values()), sum(failed)
