"""Workers that are started early, and wait to be claimed by a backend."""

from collections.abc import Collection
from dataclasses import dataclass

from lmi_core.plugins.early_engine import EarlyEngine
from lmi_core.workers.local_process import LocalProcess


@dataclass(frozen=True, slots=True)
class EarlyWorker:
    """A started worker, and the name of the backend that should claim it."""

    backend: str
    worker: LocalProcess


_waiting: dict[str, EarlyWorker] = {}  # by target


async def start_early(engine: EarlyEngine) -> None:
    """Start an engine's worker, to be claimed by its target. It belongs to the running event loop."""
    worker = LocalProcess(engine.TARGET, engine.ENVIRONMENT)
    await worker.start()
    _waiting[engine.TARGET] = EarlyWorker(engine.BACKEND, worker)


def take_early(target: str) -> LocalProcess | None:
    """Claim the worker that already runs `target`, if any."""
    waiting = _waiting.pop(target, None)
    return None if waiting is None else waiting.worker


async def end_unwanted(backends: Collection[str]) -> None:
    """End the workers of all backends except these."""
    for target, early in list(_waiting.items()):
        if early.backend not in backends:
            del _waiting[target]
            early.worker.kill()  # it may be amid an import that does not heed its parent for a second
            await early.worker.stop()
