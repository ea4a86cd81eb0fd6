"""The GPU of each worker, which `handle` functions read from the property `device_id`."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lmi_core.host.device_names import CPU

DEVICE_ID = "device_id"
NO_DEVICE = "-1"
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
DEVICES = Path("/dev")
_GPU = re.compile(r"nvidia\d+")


def device_id(
    worker: int, chosen: Sequence[str] = (), environment: Mapping[str, str] = os.environ, devices: Path = DEVICES
) -> str:
    """Return the index of the worker's GPU among those that its process sees; "-1" where there is none.

    `chosen` are the devices to use, by default all.
    """
    if chosen:
        device = chosen[worker % len(chosen)]
        return NO_DEVICE if device == CPU else device
    count = _visible(environment, devices)
    return str(worker % count) if count else NO_DEVICE


def _visible(environment: Mapping[str, str], devices: Path) -> int:
    """Return the number of visible GPUs, read from files, as importing a GPU library could initialize the devices."""
    present = sum(_GPU.fullmatch(path.name) is not None for path in devices.iterdir())
    chosen = environment.get(VISIBLE_DEVICES)
    if chosen is None:
        return present
    named = [name.strip() for name in chosen.split(",")]
    invalid = next((place for place, name in enumerate(named) if name in ("", NO_DEVICE)), len(named))
    return min(present, invalid)  # CUDA takes those before the first that is none
