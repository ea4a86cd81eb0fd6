"""`option.rolling_batch` to a backend."""

from typing import Any

from lmi_core.backend import Backend
from lmi_core.errors import PluginError
from lmi_core.registry import Registry


def choose_backend(rolling_batch: str, backends: Registry[Backend[Any]]) -> tuple[type[Backend[Any]], str]:
    """The backend and, in words, why it is that one. `auto` and `disable` take the best that works here."""
    if rolling_batch not in ("auto", "disable"):
        return backends.get(rolling_batch), f"option.rolling_batch={rolling_batch}"
    passed_over: list[str] = []
    ranked = _by_priority(backends)
    alone = ", the only backend that it can take" if len(ranked) == 1 else ""
    for backend in ranked:
        obstacle = backend.unavailable()
        if obstacle is None:
            taken = f"option.rolling_batch={rolling_batch} takes {backend.name}{alone}"
            return backend, "; ".join([taken, *passed_over])
        passed_over.append(f"not {backend.name}: {obstacle}")
    raise PluginError(f"option.rolling_batch={rolling_batch} finds no backend: {'; '.join(passed_over)}")


def _by_priority(backends: Registry[Backend[Any]]) -> list[type[Backend[Any]]]:
    ranked = [(backend.auto_priority, backend) for backend in backends if backend.auto_priority is not None]
    return [backend for _, backend in sorted(ranked, key=lambda item: -item[0])]
