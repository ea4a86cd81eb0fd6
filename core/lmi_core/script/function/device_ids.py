"""The GPU of each worker, in the property `device_id` of `handle` functions."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lmi_core.host.devices import CPU, visible_gpus

DEVICE_ID = "device_id"
NO_DEVICE = "-1"


def device_id(
    worker: int, chosen: Sequence[str] = (), environment: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> str:
    """Return the index of the worker's GPU among those visible to its process; "-1" if there is none.

    `chosen` are the devices to use, by default all.
    """
    if chosen:
        device = chosen[worker % len(chosen)]
        return NO_DEVICE if device == CPU else device
    count = visible_gpus(environment, root)
    return str(worker % count) if count else NO_DEVICE
