"""Selection of the backend by `option.rolling_batch`."""

from typing import Any

from lmi_core.backend import Backend
from lmi_core.configuration.keys_without_effect import KEYS_WITHOUT_EFFECT
from lmi_core.configuration.properties import OPTION_PREFIX, keys_of
from lmi_core.configuration.properties.request import SELECTIONS
from lmi_core.errors import PluginError
from lmi_core.host.substitution import Substitution
from lmi_core.plugins.registry import Registry
from lmi_core.serving_runtime import ServingRuntime

# DJLServing's values for engines that it no longer supports.
FORMER_ENGINES = ("deepspeed", "fastertransformer")


def choose_backend(rolling_batch: str, backends: Registry[Backend[Any]]) -> tuple[type[Backend[Any]], str]:
    """Return the backend and the reason as text; `auto` and `disable` select the best available one."""
    if rolling_batch.lower() not in (*SELECTIONS, *FORMER_ENGINES):
        in_lower_case = rolling_batch.lower()  # LMI ignores case too
        name = in_lower_case if rolling_batch not in backends and in_lower_case in backends else rolling_batch
        return backends.get(name), f"option.rolling_batch={rolling_batch}"
    passed_over: list[str] = []
    ranked = _by_priority(backends)
    alone = ", the only backend that it can select" if len(ranked) == 1 else ""
    for backend in map(backends.get, ranked):
        obstacle = backend.unavailable()
        if obstacle is None:
            taken = f"option.rolling_batch={rolling_batch} selects {backend.name}{alone}"
            return backend, "; ".join([taken, *passed_over])
        passed_over.append(f"not {backend.name}: {obstacle}")
    raise PluginError(f"option.rolling_batch={rolling_batch}: no backend is available: {'; '.join(passed_over)}")


def standing_in(
    backend: type[Backend[Any]], rolling_batch: str, cluster: str | None = None
) -> tuple[type[Backend[Any]], tuple[Substitution, ...]]:
    """Return the backend, or its replacement if this host, or one of the cluster, cannot run it, and the difference."""
    stand_in = backend.stand_in()
    if stand_in is None or (stand_in.devices_lack and cluster is not None):
        return backend, ()
    difference = Substitution("option.rolling_batch", rolling_batch, stand_in.lacking, stand_in.instead)
    return stand_in.backend, (difference,)


def foreign_keys(runtime: type[ServingRuntime[Any]], backends: Registry[Backend[Any]]) -> dict[str, str]:
    """Return the known keys without effect on this runtime, each with the reason."""
    readers: dict[str, list[str]] = {}
    for other in backends:
        declared_keys = {key for each in keys_of(other.properties_type) for key in (each.key, *each.aliases)}
        arguments = {OPTION_PREFIX + name for name in other.known_engine_arguments()}
        for key in declared_keys | arguments:
            readers.setdefault(key, []).append(other.name)
    reasons = {
        key: f"it is for option.rolling_batch={' or '.join(sorted(names))}, and {runtime.name} has no equivalent"
        for key, names in readers.items()
    }
    return {**reasons, **KEYS_WITHOUT_EFFECT}


def _by_priority(backends: Registry[Backend[Any]]) -> list[str]:
    ranked = [(each.auto_priority, each.name) for each in backends.entries() if each.auto_priority is not None]
    return [name for _, name in sorted(ranked, key=lambda item: -item[0])]
