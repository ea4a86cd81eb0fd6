"""Engines whose workers compute, or do nothing, as far as their processors' time tells."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from lmi_plugins.vllm_engine.pings import WorkersTime
from tests.plugins.costly_guides import eventually

BUSY, IDLE = "exec('while True: pass')", "import time; time.sleep(600)"
CORE = """\
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "print('ready', flush=True); " + sys.argv[2]])
exec(sys.argv[1])
"""


@contextmanager
def engine(core: str, worker: str) -> Iterator[psutil.Process]:
    """Run a process that stands for a core, with one for its worker; both have begun."""
    arguments = [sys.executable, "-c", CORE, core, worker]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        found = psutil.Process(process.pid)
        (child,) = found.children()
        try:
            yield found
        finally:
            child.kill()
            process.kill()


async def test_a_worker_that_computes_is_seen_until_it_is_stopped() -> None:
    with engine(IDLE, BUSY) as core:
        time = WorkersTime(lambda: [core.pid])
        for _ in range(3):
            assert await time.grows()
        (worker,) = core.children()
        worker.suspend()
        await eventually(lambda: worker.status() == psutil.STATUS_STOPPED)
        await time.grows()  # which sees what it had computed since the last look
        await asyncio.sleep(0.2)
        assert not await time.grows()
        worker.resume()
        await eventually(lambda: worker.status() == psutil.STATUS_RUNNING)
        assert await time.grows()


@pytest.mark.parametrize("core", [IDLE, BUSY], ids=["idle", "busy"])
async def test_a_core_does_not_count(core: str) -> None:
    """A guide that is costly to follow keeps the core busy, and its worker idle."""
    with engine(core, IDLE) as process:
        time = WorkersTime(lambda: [process.pid])
        (worker,) = process.children()
        await eventually(lambda: worker.status() == psutil.STATUS_SLEEPING)
        await time.grows()
        await asyncio.sleep(0.2)
        assert not await time.grows()


async def test_an_engine_that_is_gone() -> None:
    with engine(IDLE, IDLE) as process:
        pass
    assert not await WorkersTime(lambda: [process.pid]).grows()
