"""Child processes do not hold the event loop, however much memory their parent has, and none is left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import psutil
import pytest
import uvloop

from lmi_core.workers.child_process import ChildProcess, execute, start_process
from tests.longest_gap import event_loop_watched

COUNT = (sys.executable, "-c", "import sys; sys.exit(len(sys.stdin.readlines()))")
WAIT = ("cat",)
LIMIT = 60.0
HELD = 0.02  # seconds
BALLAST = 400 * 1024**2  # bytes, whose page tables take more than twice as long to copy
TIMES = 30  # until one meets nothing else that holds a busy machine


@asynccontextmanager
async def running(*command: str) -> AsyncIterator[ChildProcess]:
    process = await start_process(partial(execute, command, os.environ))
    try:
        async with asyncio.timeout(LIMIT):
            yield process
    finally:
        process.kill()
        await process.wait()
        process.close()


def test_the_event_loop_is_free_while_a_process_is_created() -> None:
    ballast = bytearray(b"x") * BALLAST
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the server's, which forks by itself
        longest = runner.run(longest_gaps())
    assert len(ballast) == BALLAST
    assert min(longest) < HELD, longest


async def longest_gaps() -> list[float]:
    longest = []
    for _ in range(TIMES):
        async with event_loop_watched() as gap, running(*WAIT):
            pass
        longest.append(gap.seconds)
        if gap.seconds < HELD:
            break
    return longest


async def test_what_is_written_before_the_end_of_the_input() -> None:
    async with running(*COUNT) as process:
        process.write(b"one\n")
        process.close()
        process.write(b"two\n")
        assert await process.wait() == 1


async def test_a_session_of_its_own() -> None:
    async with running(*WAIT) as process:
        assert os.getsid(process.pid) == process.pid != os.getpid()


async def test_kill() -> None:
    async with running(*WAIT) as process:
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        process.kill()


async def test_a_child_that_does_not_read_holds_nobody() -> None:
    async with running("sleep", "1000") as process:
        for _ in range(3):
            process.write(bytes(64 * 1024))  # as much as a pipe holds


async def test_waiting_again_after_being_cancelled() -> None:
    async with running(*WAIT) as process:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.wait(), 0.01)
        process.close()
        assert await process.wait() == 0


async def test_a_program_that_does_not_exist() -> None:
    threads = threading.active_count()
    with pytest.raises(FileNotFoundError):
        await start_process(partial(execute, ["/no/such/program"], {}))
    while threading.active_count() > threads:
        await asyncio.sleep(0.001)


async def test_cancelled_while_the_process_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, created, popen = threading.Event(), list[int](), subprocess.Popen[bytes]

    def slow(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        begin.wait(LIMIT)
        process = popen(*arguments, **options)
        created.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", slow)
    starting = asyncio.create_task(start_process(partial(execute, WAIT, os.environ)))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    begin.set()
    async with asyncio.timeout(LIMIT):
        while not created or is_there(created[0]):
            await asyncio.sleep(0.01)


def is_there(process_id: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process_id).is_running()
    return False
