"""Workers, or imports of their libraries, that are started early and wait to be claimed by a backend."""

import asyncio
import os
from collections.abc import Collection
from dataclasses import dataclass

from lmi_core.plugins.early_engine import EarlyEngine
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.prepared_workers import can_prepare, discard, prepared


@dataclass(frozen=True, slots=True)
class EarlyWorker:
    """A started worker, and the engine whose backend should claim it; None if workers will be forked."""

    engine: EarlyEngine
    worker: LocalProcess | None


_waiting: dict[str, EarlyWorker] = {}  # by target


async def start_early(engine: EarlyEngine) -> None:
    """Start an engine's worker, to be claimed by its target, or the process from which it will be forked.

    A worker belongs to the running event loop.
    """
    worker = None
    if can_prepare():
        await asyncio.to_thread(prepared, engine.PREPARE, {**engine.ENVIRONMENT, **os.environ})
    else:
        worker = LocalProcess(engine.TARGET, engine.ENVIRONMENT)
        await worker.start()
    _waiting[engine.TARGET] = EarlyWorker(engine, worker)


def take_early(target: str) -> LocalProcess | None:
    """Claim the worker that already runs `target`, if any."""
    waiting = _waiting.pop(target, None)
    return None if waiting is None else waiting.worker


async def end_unwanted(backends: Collection[str]) -> None:
    """End the early processes of all backends except these."""
    for target, early in list(_waiting.items()):
        if early.engine.BACKEND not in backends:
            del _waiting[target]
            if early.worker is None:
                await asyncio.to_thread(discard, early.engine.PREPARE)
            else:
                early.worker.kill()  # an import may keep it from noticing the parent's exit for a second
                await early.worker.stop()
