"""Changes of a model that is registered: its queue, its batches, its processes, and when it is unloaded."""

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lmi_core.configuration.properties import ServerProperties
from lmi_core.errors import InvalidPayload
from lmi_core.host.devices import visible_gpus
from lmi_core.registry.model_registry import ModelRegistry
from lmi_core.registry.registered_model import RegisteredModel
from lmi_core.script.function.setup import FunctionSetup
from lmi_core.serving.model import Model
from lmi_core.workers.replicas import ReplicaCount
from lmi_handlers.management.fields import ModelChange

# Fields and the keys of ServerProperties, if they differ
FIELDS = {"minWorkers": "min_workers", "maxWorkers": "max_workers"}


class Change(NamedTuple):
    """The change of one version; None for unchanged values."""

    registered: RegisteredModel
    model: Model
    server: ServerProperties | None
    workers: int | None  # at most; 0 shuts down the model


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
        server = _with_change(registered.model.server, change)
        changes.append(Change(registered, registered.model, server if change.keys else None, change.workers))
    if change.default and len(versions) == 1:
        registry.choose_default(versions[0])
    return _apply_all(registry, changes)


async def _apply_all(registry: ModelRegistry, changes: Sequence[Change]) -> None:
    for registered, model, server, workers in changes:
        await _apply(registry, model, server)
        if workers == 0:
            await registry.shut_down(registered, model)
        elif workers is not None and model.shut_down:
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


async def _apply(registry: ModelRegistry, model: Model, server: ServerProperties | None) -> None:
    if server is None:
        return
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
