"""Workers that are forked from a process that has imported their modules."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from lmi_core.logs.logs import logging_of
from lmi_core.workers import prepared_workers
from lmi_core.workers.conversation import WorkerDied
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.prepared_workers import discard, fork_server_for

ROOT = Path(__file__).parents[3]
TARGETS = "tests.core.workers.worker_targets"
PREPARE = f"{TARGETS}:prepare"
LIMIT = 60.0


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


@asynccontextmanager
async def worker(target: str, prepare: str = PREPARE) -> AsyncIterator[LocalProcess]:
    process = LocalProcess(f"{TARGETS}:{target}", prepare=prepare)
    try:
        async with asyncio.timeout(LIMIT):
            await process.start()
            yield process
    finally:
        await process.stop()


def server_id(prepare: str = PREPARE) -> int:
    return fork_server_for(prepare, os.environ).process_id


async def test_workers_are_forked_from_one_process() -> None:
    async with worker("tell_preparation") as first, worker("tell_preparation") as second:
        assert {await first.receive(), await second.receive()} == {str(server_id()).encode()}
        assert first.process_id != second.process_id


async def test_it_remains_for_the_worker_that_replaces_a_dead_one() -> None:
    async with worker("tell_preparation") as first:
        before = await first.receive()
        first.kill()
        with pytest.raises(WorkerDied, match="exit code -9"):
            await first.receive()
    async with worker("tell_preparation") as second:
        assert await second.receive() == before


async def test_another_environment_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async with worker("tell_preparation") as first, worker("tell_variable") as other:
        before = await first.receive()
        assert await other.receive() == b""
        monkeypatch.setenv("LMI_TEST", "new")
        async with worker("tell_preparation") as second, worker("tell_variable") as fourth:
            assert await second.receive() != before
            assert await fourth.receive() == b"new"
        first.send(b"it lives")
        with pytest.raises(WorkerDied, match="exit code 0"):
            await first.receive()


async def test_workers_of_all_models_are_forked_from_one_process() -> None:
    with logging_of("first"):
        async with worker("tell_preparation") as first:
            before = await first.receive()
    with logging_of("second"):
        async with worker("tell_preparation") as second:
            assert await second.receive() == before


async def test_workers_die_with_the_process_that_has_forked_them() -> None:
    async with worker("tell_preparation") as first:
        before = int(await first.receive())
        os.kill(before, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="exit code -9"):
            await first.receive()
    async with worker("tell_preparation") as second:
        assert int(await second.receive()) != before


async def test_a_frozen_one_is_replaced(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_workers, "FORK_SECONDS", 0.5)
    async with worker("tell_preparation") as first:
        before = int(await first.receive())
        os.kill(before, signal.SIGSTOP)
        first.kill()
        with pytest.raises(WorkerDied, match="exit code -9"):
            await first.receive()
        async with worker("tell_preparation") as second:
            assert await second.receive() == b"0"
    assert not psutil.pid_exists(before)
    assert "is started from scratch: its fork server did not answer, and was killed" in caplog.text


async def test_an_idle_one_ends_where_nobody_wants_it() -> None:
    process = psutil.Process(server_id())
    discard(PREPARE)
    assert not process.is_running()


async def test_a_worker_that_cannot_be_prepared_is_started_anew(caplog: pytest.LogCaptureFixture) -> None:
    async with worker("tell_preparation", f"{TARGETS}:no_such_function") as started:
        assert await started.receive() == b"0"
    assert "a worker could not be forked, and is started from scratch: its fork server has ended" in caplog.text


async def test_beside_a_gpu_no_worker_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_workers, "visible_gpus", lambda: 1)
    async with worker("tell_preparation") as started:
        assert await started.receive() == b"0"
