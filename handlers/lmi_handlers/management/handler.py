"""The routes that manage models: DJLServing's management API, which SageMaker's multi-model endpoints use, too."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from time import time
from typing import Any, ClassVar

from lmi_core.calls.answer import json_answer
from lmi_core.configuration.location import without_secrets
from lmi_core.errors import InvalidPayload, LmiError, ModelNotReady
from lmi_core.handler import Answer, AnswerForm, Call, Handler, Route
from lmi_core.hookspecs import hookimpl
from lmi_core.metrics.recent_errors import RecentError, without_values
from lmi_core.payloads.payload import check_payload
from lmi_core.registry.registered_model import RegisteredModel
from lmi_core.registry.registration import Registration
from lmi_core.registry.replacement import replace_default
from lmi_core.served_model import ServedModels
from lmi_handlers.base.plain_handler import Page, PlainHandler, operator_route, refusals, registry_of
from lmi_handlers.base.statuses import Statuses
from lmi_handlers.container.locations import name_of_url
from lmi_handlers.lmi.adapters import Status
from lmi_handlers.management.answers import (
    DescribedWorkflow,
    ListedModel,
    ListedModels,
    ListedWorkflow,
    ListedWorkflows,
)
from lmi_handlers.management.changes import begin_changes
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


async def wait_loaded(registered: RegisteredModel) -> None:
    """Wait until a model is loaded or has failed; loading continues if the client disconnects."""
    loading = registered.loading
    if loading is not None:
        await asyncio.wait([loading])


def watch_loading(call: Call, served: ServedModels, registered: RegisteredModel) -> None:
    """Add the failure of an unwatched model to the latest errors."""

    async def watch() -> None:
        await wait_loaded(registered)
        if registered.failure is not None:  # the registry has logged it
            _keep(call, served, registered.name, registered.failure)

    registry_of(served).spawn(watch())


def watch_change(call: Call, served: ServedModels, name: str, changing: Coroutine[Any, Any, None]) -> None:
    """Change a model in the background, and log failures."""

    async def change() -> None:
        try:
            await changing
        except LmiError as error:
            logger.error("model %s: the change of request %s failed: %s", name, call.request_id, error.message)
            _keep(call, served, name, error)

    registry_of(served).spawn(change())


def _keep(call: Call, served: ServedModels, name: str, error: LmiError) -> None:
    status, message = STATUSES.of(error), without_values(error.message)
    served.metrics.errors.add(RecentError(0, time(), name, call.request_id, call.path, status, error.kind, message))


async def list_models(call: Call, served: ServedModels) -> Answer:
    return json_answer(await describe_page(registry_of(served), check_payload(call.query, Page)))


async def list_workflows(call: Call, served: ServedModels) -> Answer:
    page = await describe_page(registry_of(served), check_payload(call.query, Page))
    workflows = [_workflow(each) for each in page["models"]]
    end = {"nextPageToken": page["nextPageToken"]} if "nextPageToken" in page else {}
    return json_answer({"workflows": workflows, **end})


def _workflow(model: ListedModel) -> ListedWorkflow:
    version = model.get("version")
    name = model["modelName"]
    return {"workflowName": name} if version is None else {"workflowName": name, "version": version}


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
        watch_loading(call, served, registered)
        return _status_answer(f'Model "{name}" registration scheduled.', ACCEPTED)
    try:
        await wait_loaded(registered)
    except asyncio.CancelledError:  # the client has disconnected
        watch_loading(call, served, registered)
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
    watch_change(call, served, name, changing)
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


@hookimpl
def lmi_register_handlers(register: Callable[[type[Handler]], None]) -> None:
    register(ManagementHandler)
