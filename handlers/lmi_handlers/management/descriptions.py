"""Descriptions of models for the management routes."""

from lmi_core.configuration.location import without_secrets
from lmi_core.configuration.properties import ServerProperties
from lmi_core.errors import LmiError
from lmi_core.host.pauses import with_pauses
from lmi_core.registry.model_registry import ModelRegistry
from lmi_core.registry.registered_model import ModelState, RegisteredModel
from lmi_core.serving.model import Model
from lmi_handlers.base.plain_handler import Page
from lmi_handlers.lmi.adapters import listed_adapters
from lmi_handlers.management.answers import DescribedModel, DescribedWorkflow, ListedModel, ListedModels
from lmi_handlers.management.workers import worker_groups

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
    """Describe a version of a model or, without one, all of them. Raise ModelNotFound."""
    versions = list(registry.versions(name)) if version is None else [registry.find_registered(name, version)]
    return [await _workflow(registry, each) for each in versions]


async def _workflow(registry: ModelRegistry, registered: RegisteredModel) -> DescribedWorkflow:
    workflow = DescribedWorkflow(workflowName=registered.name, models=[await _describe(registry, registered)])
    if registered.version is not None:
        workflow["version"] = registered.version
    return workflow


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
