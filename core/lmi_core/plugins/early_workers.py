"""Workers, or imports of their libraries, that are started early and wait to be claimed by a backend."""

import asyncio
import os
from collections.abc import Collection

from lmi_core.logs.logs import logging_of
from lmi_core.plugins.early_engine import EarlyEngine
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.prepared_workers import can_prepare, discard, fork_server_for

# By target: the engine whose backend should claim the worker, and the worker; None where workers will be forked.
_waiting: dict[str, tuple[EarlyEngine, LocalProcess | None]] = {}


async def start_early(engine: EarlyEngine, model: str | None = None) -> None:
    """Start the worker of a model's engine, to be claimed by its target, or the process from which it will be forked.

    A worker belongs to the running event loop.
    """
    worker = None
    if can_prepare():
        await asyncio.to_thread(fork_server_for, engine.PREPARE, {**engine.ENVIRONMENT, **os.environ})
    else:
        with logging_of(model):
            worker = LocalProcess(engine.TARGET, engine.ENVIRONMENT)
        await worker.start()
    _waiting[engine.TARGET] = engine, worker


def take_early(target: str) -> LocalProcess | None:
    """Claim the worker that already runs `target`, if any."""
    _, worker = _waiting.pop(target, (None, None))
    return worker


async def end_unwanted(backends: Collection[str]) -> None:
    """End the early processes of all backends except these."""
    for target, (engine, worker) in list(_waiting.items()):
        if engine.BACKEND not in backends:
            del _waiting[target]
            if worker is None:
                await asyncio.to_thread(discard, engine.PREPARE)
            else:
                worker.kill()  # it may be amid an import that does not heed its parent for a second
                await worker.stop()
