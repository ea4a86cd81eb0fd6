"""Descriptions of models and of their processes, by device, for the management routes."""

import asyncio
import os
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

from lmi_core.configuration.location import without_secrets
from lmi_core.configuration.properties import ServerProperties
from lmi_core.errors import LmiError
from lmi_core.host.devices import CPU, visible_gpus
from lmi_core.host.pauses import with_pauses
from lmi_core.host.processes import memory_of, start_time
from lmi_core.registry.model_registry import ModelRegistry
from lmi_core.registry.registered_model import ModelState, RegisteredModel
from lmi_core.serving.model import Model
from lmi_handlers.base.plain_handler import Page
from lmi_handlers.lmi.adapters import listed_adapters
from lmi_handlers.management.answers import (
    DescribedModel,
    DescribedWorkflow,
    Device,
    ListedModel,
    ListedModels,
    ListedWorker,
    WorkerGroup,
)

RUNS = "READY"  # DJLServing's value
OWN = -1  # instead of a process id: the model runs in the server's own process


async def worker_groups(registered: RegisteredModel, model: Model, *, is_well: bool) -> list[WorkerGroup]:
    """Return the model's workers on each device; none unless the model is loaded.

    `is_well` means that the engine responds; without its own process, it runs in the server's.
    """
    gpus = visible_gpus()
    several = model.function is not None or model.runtime.replicas is not None
    minimum, maximum = model.server.workers(gpus) if several else (1, 1)
    if model.shut_down:
        minimum = maximum = 0
    found = [*_processes(model, gpus, is_well=is_well)] if model.ready else []
    loaded_at = registered.loaded_at or model.created
    # In a thread, because it reads files of each process
    listed = await asyncio.to_thread(lambda: [_worker(each, loaded_at) for each in found])
    workers: dict[str, list[ListedWorker]] = {}
    for process, worker in zip(found, listed, strict=True):
        workers.setdefault(process.device, []).append(worker)
    inside = model.runtime.figures().sequences or {}
    for worker in chain.from_iterable(workers.values()):
        if worker["id"] in inside:
            worker["sequences"] = inside[worker["id"]]
    return [
        WorkerGroup(device=_device(place), minWorkers=minimum, maxWorkers=maximum, workers=workers.get(place, []))
        for place in dict.fromkeys((*_places(model, gpus), *workers))
    ]


def _places(model: Model, gpus: int) -> list[str]:
    """Return the devices with separate workers; for an engine on several devices, the first one."""
    if model.runtime.replicas is not None:
        return [group[0] for group in model.runtime.placement(model.runtime.setup.replicas).groups]
    devices = list(model.server.devices) or ["0" if gpus else CPU]
    return devices if model.function is not None else devices[:1]


class _Process(NamedTuple):
    """A worker: its device and number, and its node if that is not this host."""

    device: str
    number: int
    process_id: int
    node: str = ""


def _processes(model: Model, gpus: int, *, is_well: bool) -> list[_Process]:
    """Return the workers of a model by device, the ones on this host first."""
    places = _places(model, gpus)
    replicas = model.runtime.replicas if model.function is None else model.function.pool.replicas
    if replicas is None:
        ids = model.runtime.process_ids() or ([OWN] if is_well else [])
        return [_Process(places[0], number, process_id) for number, process_id in enumerate(ids, start=1)]
    found: list[_Process] = []
    for replica in replicas.members:
        number = replicas.number(replica)
        found += [_Process(places[number % len(places)], number + 1, each) for each in replica.process_ids]
        if (place := replica.place) is not None:
            found.append(_Process(places[0], number + 1, place.process_id, place.node))
    return sorted(found, key=lambda each: (bool(each.node), each))


def _worker(process: _Process, loaded_at: float) -> ListedWorker:
    """Describe a worker; the memory of the server's process does not belong to the model alone."""
    is_here = process.process_id != OWN and not process.node
    begun = (start_time(process.process_id) if is_here else None) or loaded_at
    process_id = os.getpid() if process.process_id == OWN else process.process_id
    worker = ListedWorker(id=process.number, startTime=_format(begun), status=RUNS, processId=process_id)
    if is_here and (memory := memory_of({"": [process_id]}).get("")) is not None:
        worker["memoryUsage"] = memory
    if process.node:
        worker["node"] = process.node
    return worker


def _device(place: str) -> Device:
    return {"deviceType": "cpu", "deviceId": -1} if place == CPU else {"deviceType": "gpu", "deviceId": int(place)}


def _format(seconds: float) -> str:
    time = datetime.fromtimestamp(seconds, UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z"


AT_ONCE = 500  # models, listed in a few milliseconds before requests get a turn
# DJLServing's values, which its clients expect.
STATUSES = {
    ModelState.FETCHING: "PENDING",
    ModelState.LOADING: "PENDING",
    ModelState.READY: "READY",
    ModelState.IDLE: "READY",
    ModelState.UNLOADING: "UNLOADING",
    ModelState.FAILED: "FAILED",
}


async def describe_page(registry: ModelRegistry, page: Page) -> ListedModels:
    """Return a page of the models, by name, each with all its versions."""
    names = registry.names
    end = page.next_page_token + page.limit
    pages = (registry.versions(name) for name in names[page.next_page_token : end])
    found = [(each, each is versions.default) for versions in pages for each in versions]
    models = [_summarize(*each) async for each in with_pauses(found, AT_ONCE)]
    return {"models": models, "nextPageToken": str(end)} if end < len(names) else {"models": models}


def _summarize(registered: RegisteredModel, is_default: bool) -> ListedModel:
    state = registered.state
    listed = ListedModel(
        modelName=registered.name,
        modelUrl=without_secrets(registered.registration.url),
        status=STATUSES[state],
        state=state.value,
        default=is_default,
        loadedAtStartup=registered.at_startup,
    )
    if registered.version is not None:
        listed["version"] = registered.version
    return listed


async def describe(registry: ModelRegistry, name: str, version: str | None) -> list[DescribedWorkflow]:
    """Describe a version of a model or, without one, all of them. Raise ModelNotFound if there is none."""
    versions = list(registry.versions(name)) if version is None else [registry.find_registered(name, version)]
    workflows = []
    for registered in versions:
        workflow = DescribedWorkflow(workflowName=registered.name, models=[await _describe(registry, registered)])
        if registered.version is not None:
            workflow["version"] = registered.version
        workflows.append(workflow)
    return workflows


async def _describe(registry: ModelRegistry, registered: RegisteredModel) -> DescribedModel:
    model, state = registered.model, registered.state
    server = ServerProperties() if model is None else model.server
    fault = await fault_of(model) if state is ModelState.READY else None
    reason = fault or registered.failure
    found = DescribedModel(
        modelName=registered.name,
        modelUrl=without_secrets(registered.registration.url),
        batchSize=server.batch_size,
        maxBatchDelayMillis=server.max_batch_delay,
        maxIdleSeconds=server.max_idle_time,
        queueSize=server.job_queue_size,
        requestInQueue=0 if model is None else model.admission.taken,
        status="Unhealthy" if fault else "Healthy" if STATUSES[state] == "READY" else STATUSES[state],
        loadedAtStartup=registered.at_startup,
        workerGroups=[] if model is None else await worker_groups(registered, model, is_well=fault is None),
        state=state.value,
        default=registry.versions(registered.name).default is registered,
        servedNames=[registered.name] if model is None else list(model.names),
        adapters=[] if model is None else listed_adapters(model),
        warnings=[] if model is None else model.warnings,
    )
    if model is not None:
        found["backend"] = model.runtime_name
    if state in (ModelState.FETCHING, ModelState.LOADING) and registered.progress.what:
        found["progress"] = str(registered.progress)
    if reason is not None:
        found["reason"] = reason.message
    return found


async def fault_of(model: Model | None) -> LmiError | None:
    """Return why a model does not accept requests, or None."""
    try:
        if model is not None:
            await model.health()
    except LmiError as error:
        return error
    return None
