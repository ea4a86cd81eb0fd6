"""The devices of a backend, from `load_on_devices`."""

from typing import TYPE_CHECKING, Any

from lmi_core.configuration.configuration import Configuration
from lmi_core.configuration.properties import ServerProperties, keys_of
from lmi_core.host.devices import CPU, visible_gpus

if TYPE_CHECKING:
    from lmi_core.backend import Backend

KEY = "load_on_devices"
DEVICE = "option.device"


def place_on_devices(server: ServerProperties, backend: "type[Backend[Any]]", configuration: Configuration) -> None:
    """Set the backend's `option.device`; warn if the backend has no such option, or uses only one of several
    devices.
    """
    if not server.devices:
        return
    asked = f"{KEY}={server.load_on_devices}"
    if not any(key.key == DEVICE for key in keys_of(backend.properties_type)):
        if backend.replicates and visible_gpus() and server.devices != (CPU,):
            return  # each of its engines gets its own device
        configuration.warnings.append(
            f"{configuration.source(KEY)}: {asked} has no effect: the environment variable CUDA_VISIBLE_DEVICES "
            f"selects the devices of {backend.name}"
        )
        return
    first = server.devices[0]
    device = first if first == CPU else f"cuda:{first}"
    configuration.imply(DEVICE, device, KEY)
    if len(server.devices) > 1 and not backend.replicates:
        configuration.warnings.append(
            f"{configuration.source(KEY)}: {asked} means {device} alone: {backend.name} runs on one device"
        )
