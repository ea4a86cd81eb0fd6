"""A worker that was started early, and one that replaces another and never gets ready."""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from lmi_core.errors import BackendUnhealthy
from lmi_core.plugins.early_engine import EarlyEngine
from lmi_core.plugins.early_workers import start_early
from lmi_core.workers import restarts, supervisor
from lmi_core.workers.worker import Worker
from lmi_plugins.torch_engine.client.engine_worker import EngineWorker
from tests.command_lines import command_line

ROOT = Path(__file__).parents[4]
TARGET = "tests.core.workers.worker_targets:hello_once"
SHORT = 3.0  # seconds for a restart


async def greet(worker: Worker) -> None:
    await worker.receive()


async def test_it_is_killed_and_counts_as_a_failed_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restarts, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(supervisor, "MIN_RESTART_TIME", SHORT)
    monkeypatch.setattr(supervisor, "RESTART_FACTOR", 0)
    monkeypatch.setenv("LMI_TEST", str(tmp_path / "was here"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    losses: list[str] = []
    worker = EngineWorker(TARGET, greet, lambda _: None, losses.append, 1, b"", 0, 1800)
    await worker.start()
    assert worker.process_id is not None
    before = set(psutil.Process().children())
    psutil.Process(worker.process_id).kill()
    async with asyncio.timeout(60):
        await worker.restarts.given_up.wait()
    with pytest.raises(BackendUnhealthy, match="is not restarted again, after 1 consecutive restarts"):
        await worker.available()
    assert losses == ["the worker ended with exit code -9"]
    assert "could not be restarted: it did not start within 3 seconds" in caplog.text
    assert set(psutil.Process().children()) <= before
    await worker.stop()


async def test_a_worker_that_was_started_early_is_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMI_TEST", str(tmp_path / "was here"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    await start_early(cast("EarlyEngine", SimpleNamespace(BACKEND="torch", TARGET=TARGET, ENVIRONMENT={})))
    started = [child.pid for child in psutil.Process().children() if TARGET in command_line(child)]
    worker = EngineWorker(TARGET, greet, lambda _: None, lambda _: None, 0, b"", 0, 1800)
    try:
        await worker.start()
        assert [worker.process_id] == started
    finally:
        await worker.stop()
