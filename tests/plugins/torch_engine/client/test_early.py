"""A worker that was started early, which the client takes in place of a new one."""

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from lmi_core.generation.coalescing import OutputCoalescing
from lmi_core.plugins import early_workers
from lmi_core.plugins.early_engine import EarlyEngine
from lmi_core.plugins.early_workers import start_early
from lmi_core.workers.local_process import LocalProcess
from lmi_plugins.torch_engine.client import engine_worker as torch_client
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from tests.command_lines import command_line

ROOT = Path(__file__).parents[4]
TARGET = "tests.core.workers.worker_targets:exit_with_3"


async def test_a_worker_that_was_started_early_is_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_workers, "can_prepare", lambda: False)
    monkeypatch.setattr(torch_client, "TARGET", TARGET)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    client = torch_client.EngineWorker(
        EngineOptions("nowhere"), 0, 0, 0, OutputCoalescing(0), partial(LocalProcess, TARGET)
    )
    await start_early(cast("EarlyEngine", SimpleNamespace(BACKEND="torch", TARGET=TARGET, PREPARE="", ENVIRONMENT={})))
    started = [child.pid for child in psutil.Process().children() if TARGET in command_line(child)]
    first, second = client._endpoint(), client._endpoint()
    try:
        assert started
        assert [first.process_id] == started
        assert second.process_id is None
    finally:
        await first.stop()
        await second.stop()
