"""The device of a replica, its share of common resources, its worker, and the files that the worker reads."""

import logging
import os
from pathlib import Path

from msgspec.structs import replace

from lmi_core.errors import ConfigurationError
from lmi_core.host.devices import CPU
from lmi_core.logs.loading_progress import Report
from lmi_core.remote.nodes.sending import RECEIVING, NodeFiles
from lmi_core.workers.endpoint import Endpoint
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.placement import Placement
from lmi_core.workers.ray_actor import RayActor
from lmi_core.workers.replicas import ReplicaCount
from lmi_core.workers.shared_worker import SharedWorker, TrialTurn, host_of_this_process
from lmi_plugins.torch_engine.client.early import ENVIRONMENT
from lmi_plugins.torch_engine.messages.requests import EngineOptions

logger = logging.getLogger(__name__)


def place(options: EngineOptions, number: int, placement: Placement, count: ReplicaCount) -> EngineOptions:
    """Return the options of a replica, by number from 0; replicas on a CPU also share its cores."""
    if placement.ray_address is not None:
        return options
    device = placement.devices(number)[0]
    if device != CPU:
        on_device = max(1, count.minimum // len(placement.groups))
        return replace(options, device=f"cuda:{device}", replicas_on_device=on_device)
    if count.minimum > 1 and options.threads is None:
        options = replace(options, threads=max(1, (os.cpu_count() or 1) // count.minimum))
    return replace(options, replicas_on_device=count.minimum)


def trial_turn(number: int, shared_as: str) -> TrialTurn | None:
    """Return the turn for trials in a replica; None if it is not shared."""
    host = host_of_this_process()
    return None if host is None else TrialTurn(host.parent / f"trial-{number}-{shared_as}")


def endpoint(
    target: str, number: int, placement: Placement, prepare: str | None = None, shared_as: str | None = None
) -> Endpoint:
    """Return the endpoint of a worker for a replica.

    Front ends share the workers of models with the same `shared_as`.
    """
    if placement.ray_address is None:
        host = host_of_this_process()
        if host is not None and shared_as is not None:
            return SharedWorker(host, f"{number} {shared_as}", target, ENVIRONMENT, prepare)
        return LocalProcess(target, ENVIRONMENT, prepare=prepare)
    gpus = [device for device in placement.devices(number) if device != CPU]
    return RayActor(placement.ray_address, target, RECEIVING, ENVIRONMENT, len(gpus))


async def with_files(options: EngineOptions, files: NodeFiles | None, report: Report) -> EngineOptions:
    """Return the options with folders on a worker's node, copied to that node if they are missing there.

    Raise ConfigurationError if that fails, or WorkerDied if the worker has ended. If the engine skips adapters that it
    cannot load, skip those that cannot be copied.
    """
    if files is None:
        return options

    async def bring(source: str) -> str:
        """Return the folder on the node; other sources, and missing folders, are returned unchanged."""
        return str(await files.bring(Path(source), report)) if Path(source).is_dir() else source

    draft = options.speculative_draft_model
    model, draft = await bring(options.model), None if draft is None else await bring(draft)
    adapters = dict[str, str]()
    for name, folder in options.adapters.items():
        try:
            adapters[name] = await bring(folder)
        except ConfigurationError as error:
            if not options.leaves_out_adapters:
                raise ConfigurationError(f"adapter {name}: {error.message}") from None
            logger.error("the adapter %s could not be copied again and was removed: %s", name, error.message)
    return replace(options, model=model, speculative_draft_model=draft, adapters=adapters)
