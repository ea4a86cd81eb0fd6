"""The routes that manage models: DJLServing's management API, which SageMaker's multi-model endpoints use, too."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from time import time
from typing import Any, ClassVar

from lmi_core.calls.answer import json_answer
from lmi_core.configuration.location import without_secrets
from lmi_core.configuration.properties import ServerProperties
from lmi_core.errors import InvalidPayload, LmiError, ModelNotReady
from lmi_core.handler import Answer, AnswerForm, Call, Route
from lmi_core.host.devices import visible_gpus
from lmi_core.metrics.recent_errors import RecentError, without_values
from lmi_core.payloads.payload import check_payload
from lmi_core.registry.model_registry import ModelRegistry
from lmi_core.registry.registered_model import RegisteredModel
from lmi_core.registry.registration import Registration
from lmi_core.registry.replacement import replace_default
from lmi_core.script.function.setup import FunctionSetup
from lmi_core.served_model import ServedModels
from lmi_core.serving.model import Model
from lmi_core.workers.replicas import ReplicaCount
from lmi_handlers.base.plain_handler import Page, PlainHandler, operator_route, refusals, registry_of
from lmi_handlers.base.statuses import Statuses
from lmi_handlers.container.locations import name_of_url
from lmi_handlers.lmi.adapters import Status
from lmi_handlers.management.answers import (
    DescribedWorkflow,
    ListedModels,
    ListedWorkflow,
    ListedWorkflows,
)
from lmi_handlers.management.descriptions import describe, describe_page
from lmi_handlers.management.fields import ModelChange, NewModel, is_name, read_fields
from lmi_handlers.management.reader import SOURCE

logger = logging.getLogger(__name__)

# As in DJLServing and SageMaker, a model that cannot be loaded is an error of the request that registers it.
STATUSES = Statuses(
    model_exists=409,
    adapter_not_found=400,
    rate_limited=400,
    generation_failed=400,
    generation_timeout=400,
    aborted=400,
    formatter_failed=400,
)
ACCEPTED = 202
LISTED = (AnswerForm(ListedModels),)
WORKFLOWS = (AnswerForm(ListedWorkflows),)
DESCRIBED = (AnswerForm(list[DescribedWorkflow]),)
DONE = (AnswerForm(Status),)
DONE_OR_BEGUN = (AnswerForm(Status, statuses=(200, ACCEPTED)),)
# Fields and the keys of ServerProperties, if they differ
FIELDS = {"minWorkers": "min_workers", "maxWorkers": "max_workers"}
Change = tuple[RegisteredModel, Model, ServerProperties]  # a version, with its new settings


async def wait_loaded(registered: RegisteredModel) -> None:
    """Wait until a model is loaded or has failed; loading continues if the client disconnects."""
    loading = registered.loading
    if loading is not None:
        await asyncio.wait([loading])


async def watch_loading(call: Call, served: ServedModels, registered: RegisteredModel) -> None:
    """Add the failure of a model for which no client waits to the latest errors."""
    await wait_loaded(registered)
    if registered.failure is not None:  # the registry has logged it
        _keep(call, served, registered.name, registered.failure)


async def log_failure(call: Call, served: ServedModels, name: str, changing: Coroutine[Any, Any, None]) -> None:
    """Change a model, in the background, and log failures."""
    try:
        await changing
    except LmiError as error:
        logger.error("model %s: the change of request %s failed: %s", name, call.request_id, error.message)
        _keep(call, served, name, error)


def _keep(call: Call, served: ServedModels, name: str, error: LmiError) -> None:
    status, message = STATUSES.of(error), without_values(error.message)
    served.metrics.errors.add(RecentError(0, time(), name, call.request_id, call.path, status, error.kind, message))


async def list_models(call: Call, served: ServedModels) -> Answer:
    return json_answer(await describe_page(registry_of(served), check_payload(call.query, Page)))


async def list_workflows(call: Call, served: ServedModels) -> Answer:
    page = await describe_page(registry_of(served), check_payload(call.query, Page))
    workflows: list[ListedWorkflow] = []
    for model in page["models"]:
        workflows.append({"workflowName": model["modelName"]})
        if "version" in model:
            workflows[-1]["version"] = model["version"]
    end = {"nextPageToken": page["nextPageToken"]} if "nextPageToken" in page else {}
    return json_answer({"workflows": workflows, **end})


async def register_model(call: Call, served: ServedModels) -> Answer:
    fields, options = read_fields(call, NewModel)
    name = fields.model_name or name_of_url(fields.url)
    if not is_name(name):
        raise InvalidPayload(
            f"`model_name` is required, because `url` contains no name. Given: {without_secrets(fields.url)}"
        )
    registration = Registration(name, fields.url, fields.model_version, fields.overrides(options, SOURCE))
    registry = registry_of(served)
    registered = registry.register(
        registration, default=fields.default, load=replace_default if fields.replace else None
    )
    if not fields.synchronous:
        registry.spawn(watch_loading(call, served, registered))
        return _status_answer(f'Model "{name}" registration scheduled.', ACCEPTED)
    try:
        await wait_loaded(registered)
    except asyncio.CancelledError:  # the client has disconnected
        registry.spawn(watch_loading(call, served, registered))
        raise
    if registered.failure is not None:
        registry.forget_failed(registered)
        raise registered.failure
    if not registry.has(registered):
        raise ModelNotReady(f"model {name} was unregistered while it was being loaded")
    return _status_answer(f'Model "{name}" registered.')


async def describe_model(call: Call, served: ServedModels) -> Answer:
    name, version = _path_model(call)
    return json_answer(await describe(registry_of(served), name, version))


def begin_changes(
    registry: ModelRegistry, versions: Sequence[RegisteredModel], change: ModelChange
) -> Coroutine[Any, Any, None]:
    """Check the given fields and return a coroutine that applies them to all versions; omitted ones stay unchanged.

    Raise ModelNotReady while a version is loading, and InvalidPayload for contradictory fields.
    """
    changes: list[Change] = []
    for registered in versions:
        if registered.model is None:
            raise registered.refuse()
        changes.append((registered, registered.model, _with_change(registered.model.server, change)))
    if change.default and len(versions) == 1:
        registry.choose_default(versions[0])
    return _apply_all(registry, changes, change)


async def _apply_all(registry: ModelRegistry, changes: Sequence[Change], change: ModelChange) -> None:
    for registered, model, server in changes:
        if change.keys:
            await _apply(registry, model, server)
        if change.workers == 0:
            await registry.shut_down(registered, model)
        elif change.workers is not None and model.shut_down:
            model.shut_down = False
            await registry.wake(model)


def _with_change(server: ServerProperties, change: ModelChange) -> ServerProperties:
    given = {FIELDS.get(key, key): value for key, value in change.keys.items()}
    if change.workers is not None:
        given["max_workers"] = str(change.workers)
    if (lowest := int(given.get("min_workers", 0))) > int(given.get("max_workers", lowest)):
        raise InvalidPayload(f"`min_worker` must be at most `max_worker`={given['max_workers']}. Given: {lowest}")
    if given.get("max_workers") == "0":  # the keys keep their values for when the model is loaded again
        given = {key: value for key, value in given.items() if key not in FIELDS.values()}
    for name in ("min_workers", "max_workers"):
        if name in given:  # even if the directory sets it for this type of device
            given[f"{'gpu' if visible_gpus() else 'cpu'}_{name}"] = given[name]
    kept = {name: getattr(server, name) for name in server.model_fields_set}
    return ServerProperties.model_validate(kept | given)


async def _apply(registry: ModelRegistry, model: Model, server: ServerProperties) -> None:
    count = ReplicaCount(*server.workers(visible_gpus()))
    setup = replace(model.plan.setup, replicas=count)
    if isinstance(setup, FunctionSetup):
        setup = replace(setup, pool=replace(setup.pool, server=server))
    model.change_server(server, setup)
    if model.function is not None and isinstance(setup, FunctionSetup) and model.ready:
        await model.function.pool.change(setup.pool)
    registry.publish(model.name)
    if (replicas := model.runtime.replicas) is not None and model.ready:
        await replicas.scale(model.runtime.placement(count).replicas)


async def update_model(call: Call, served: ServedModels) -> Answer:
    name, version = _path_model(call)
    registry = registry_of(served)
    changed = list(registry.versions(name)) if version is None else [registry.find_registered(name, version)]
    fields, options = read_fields(call, ModelChange)
    if options:
        raise InvalidPayload(f"`{next(iter(options))}` cannot be changed while the model is loaded: register it again")
    changing = begin_changes(registry, changed, fields)
    if fields.synchronous:
        await changing
        return _status_answer("Worker updated")
    registry.spawn(log_failure(call, served, name, changing))
    return _status_answer("Worker updated", ACCEPTED)


async def unregister_model(call: Call, served: ServedModels) -> Answer:
    name, version = _path_model(call)
    registry = registry_of(served)
    await asyncio.gather(*(registry.unregister(each) for each in registry.find_all(name, version)))
    return _status_answer(f'Model or workflow "{name}" unregistered')


def _path_model(call: Call) -> tuple[str, str | None]:
    return call.path_parameters["model"], call.path_parameters.get("version")


def _status_answer(what: str, status: int = 200) -> Answer:
    return json_answer({"status": what}, status)


def _of_model(path: str) -> tuple[Route, ...]:
    """Return the routes of one model, or of one version of it."""
    return (
        operator_route(path, "GET", describe_model, "A model's state, workers, queue and adapters", DESCRIBED),
        operator_route(path, "PUT", update_model, "Change a model's workers and queue", DONE_OR_BEGUN, ModelChange),
        operator_route(path, "DELETE", unregister_model, "Remove a model, once its requests have ended", DONE),
    )


class ManagementHandler(PlainHandler):
    name: ClassVar[str] = "management"
    summary: ClassVar[str] = "DJLServing's routes that manage models"
    statuses: ClassVar[Statuses] = STATUSES
    errors: ClassVar[tuple[AnswerForm, ...]] = refusals(STATUSES)
    routes: ClassVar[tuple[Route, ...]] = (
        operator_route("/models", "GET", list_models, "The registered models", LISTED),
        operator_route("/models", "POST", register_model, "Load a model", DONE_OR_BEGUN, NewModel),
        *_of_model("/models/{model}"),
        *_of_model("/models/{model}/{version}"),
        operator_route("/workflows", "GET", list_workflows, "The registered models as workflows", WORKFLOWS),
        *_of_model("/workflows/{model}"),
        *_of_model("/workflows/{model}/{version}"),
    )
