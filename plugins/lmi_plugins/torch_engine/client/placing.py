"""The device of a replica, and its share of what it has with others."""

import os

from msgspec.structs import replace

from lmi_core.host.devices import CPU
from lmi_core.workers.placement import Placement
from lmi_core.workers.replicas import ReplicaCount
from lmi_plugins.torch_engine.messages.requests import EngineOptions


def placed(options: EngineOptions, number: int, placement: Placement, count: ReplicaCount) -> EngineOptions:
    """Return the options of the replica of a number, from 0; several on a CPU share its cores, too."""
    device = placement.devices(number)[0]
    if device != CPU:
        on_device = max(1, count.minimum // len(placement.groups))
        return replace(options, device=f"cuda:{device}", replicas_on_device=on_device)
    if count.minimum > 1 and options.threads is None:
        options = replace(options, threads=max(1, (os.cpu_count() or 1) // count.minimum))
    return replace(options, replicas_on_device=count.minimum)
