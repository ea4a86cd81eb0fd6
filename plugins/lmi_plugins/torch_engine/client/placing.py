"""The device of a replica, its share of common resources, its worker, and the files that the worker reads."""

import logging
import os
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from msgspec.structs import replace

from lmi_core.errors import ConfigurationError
from lmi_core.host.devices import CPU
from lmi_core.logs.loading_progress import Report
from lmi_core.remote.held_copies import is_in_copy
from lmi_core.remote.nodes.listing import list_files
from lmi_core.remote.nodes.sending import RECEIVING, NodeFiles
from lmi_core.workers.conversation import Endpoint
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.messages import encode
from lmi_core.workers.placement import Placement
from lmi_core.workers.ray_actor import RayActor
from lmi_core.workers.replicas import ReplicaCount
from lmi_core.workers.shared_ray_actor import SharedRayActor
from lmi_core.workers.shared_worker import SharedWorker, host_of_this_process
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


def sharing_name(options: EngineOptions, placement: Placement) -> str | None:
    """Return the name by which servers share the model's engines; None if each server has its own.

    On a cluster, the name also identifies the model's files and this package's version, which may differ between hosts.
    """
    if placement.ray_shared:
        sources = [options.model, options.speculative_draft_model, *options.adapters.values()]
        folders = [folder for each in sources if each is not None and (folder := Path(each)).is_dir()]
        with suppress(OSError, UnicodeEncodeError):  # which loading the model reports
            files = [list_files(folder)[0] for folder in folders if not is_in_copy(folder)]
            return sha256(encode([version("lmi-handlers"), options, files])).hexdigest()
    return sha256(encode(options)).hexdigest() if placement.ray_shared or host_of_this_process() is not None else None


def endpoint(target: str, number: int, placement: Placement, prepare: str, sharing_name: str | None) -> Endpoint:
    """Return the endpoint of a worker for a replica. Servers share the workers of models with one `sharing_name`."""
    gpus = len([device for device in placement.devices(number) if device != CPU])
    cluster, host, name = placement.ray_address, host_of_this_process(), f"{number} {sharing_name}"
    if cluster is not None and placement.ray_shared:
        return SharedRayActor(cluster, name, target, RECEIVING, ENVIRONMENT, gpus)
    if cluster is not None:
        return RayActor(cluster, target, RECEIVING, ENVIRONMENT, gpus)
    if host is not None:
        return SharedWorker(host, name, target, ENVIRONMENT, prepare)
    return LocalProcess(target, ENVIRONMENT, prepare=prepare)


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
