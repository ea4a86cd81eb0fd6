import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
import zmq

from lmi_core.errors import OutOfMemory
from lmi_core.host import processes
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE, logging_of
from lmi_core.workers import local_process
from lmi_core.workers.conversation import WorkerDied
from lmi_core.workers.local_process import LocalProcess

ROOT = Path(__file__).parents[3]
LIMIT = 60.0

PARENT = """\
import asyncio
from lmi_core.workers.local_process import LocalProcess

async def main():
    worker = LocalProcess("tests.core.workers.worker_targets:tell_process")
    await worker.start()
    await worker.receive()
    print(worker.process_id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

PREPARE = "tests.core.workers.worker_targets:prepare"

Start = Callable[[str], Awaitable[LocalProcess]]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find this package, wherever the tests were started."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


@pytest_asyncio.fixture(params=[None, PREPARE], ids=["executed", "forked"])
async def start(request: pytest.FixtureRequest) -> AsyncIterator[Start]:
    """`await start("echo")` starts that target in a worker; it stops when the test ends."""
    workers: list[LocalProcess] = []

    async def started(target: str) -> LocalProcess:
        worker = LocalProcess(f"tests.core.workers.worker_targets:{target}", prepare=request.param)
        workers.append(worker)
        await worker.start()
        return worker

    yield started
    for worker in workers:
        await worker.stop()


async def process_id(worker: LocalProcess) -> int:
    """Return the process id of a worker that runs `tell_process`, once it runs."""
    async with asyncio.timeout(LIMIT):
        return int((await worker.receive()).split()[0])


async def death(worker: LocalProcess) -> int:
    async with asyncio.timeout(LIMIT):
        with pytest.raises(WorkerDied) as raised:
            await worker.receive()
    died, _, cause = str(raised.value).partition(", ")
    words, _, code = died.rpartition(" ")
    assert words == "the worker ended with exit code"
    assert cause == ("as if killed by the system for lack of memory" if int(code) == -signal.SIGKILL else "")
    return int(code)


def is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


async def test_messages_both_ways(start: Start) -> None:
    worker = await start("tell_pending")
    async with asyncio.timeout(LIMIT):
        assert await worker.receive() == b"nothing"
        for message in (b"a", b"b", b"last"):
            worker.send(message)
        assert await worker.receive() == b"a b last"


async def test_everything_that_was_said_before_the_end_is_read(start: Start) -> None:
    worker = await start("count")
    assert worker.process_id is not None
    with suppress(ChildProcessError):  # when the event loop knows of its end already
        await asyncio.to_thread(os.waitid, os.P_PID, worker.process_id, os.WEXITED | os.WNOWAIT)
    async with asyncio.timeout(LIMIT):
        said = [int(await worker.receive()) for _ in range(100)]
    assert said == list(range(100))
    assert await death(worker) == 0


@pytest.mark.parametrize(("target", "exit_code"), [("exit_with_3", 3), ("crash", 1), ("no_such_function", 1)])
async def test_child_that_ends(start: Start, target: str, exit_code: int) -> None:
    worker = await start(target)
    assert await death(worker) == exit_code
    assert await death(worker) == exit_code


async def test_exception_in_the_target_is_logged(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    assert await death(await start("crash")) == 1
    errors = capfd.readouterr().err
    assert "in crash" in errors
    assert "ValueError: broken target" in errors


async def test_lines_of_a_worker_name_its_model(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    with logging_of("first"):
        worker = await start("log")
    async with asyncio.timeout(LIMIT):
        assert await worker.receive() == b"logged"
    assert "worker: model first: it runs\n" in capfd.readouterr().err


async def test_killed_child(start: Start) -> None:
    worker = await start("tell_process")
    os.kill(await process_id(worker), signal.SIGKILL)
    assert await death(worker) == -signal.SIGKILL
    with pytest.raises(WorkerDied) as raised:
        await worker.receive()
    assert isinstance(raised.value.while_loading("the engine"), OutOfMemory)  # as the system ends a process


async def test_messages_to_a_dead_child_are_lost(start: Start) -> None:
    worker = await start("tell_process")
    os.kill(await process_id(worker), signal.SIGKILL)
    async with asyncio.timeout(LIMIT):
        while worker._socket.get(zmq.EVENTS) & zmq.POLLOUT:  # type: ignore[operator, arg-type]
            await asyncio.sleep(0.001)
    worker.send(b"to nobody")
    assert await death(worker) == -signal.SIGKILL


async def test_child_runs_in_a_session_of_its_own(start: Start) -> None:
    worker = await start("tell_process")
    async with asyncio.timeout(LIMIT):
        child, session, _ = (await worker.receive()).split()
    assert int(child) == int(session) == worker.process_id != os.getpid()


async def test_log_level(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG_LEVEL_VARIABLE, "warning")
    worker = await start("tell_process")
    async with asyncio.timeout(LIMIT):
        assert (await worker.receive()).split()[2] == b"WARNING"


@pytest.mark.parametrize(("already_set", "expected"), [(None, b"given"), ("set", b"set")])
async def test_environment_gives_way_to_what_is_set(
    monkeypatch: pytest.MonkeyPatch, already_set: str | None, expected: bytes
) -> None:
    if already_set is not None:
        monkeypatch.setenv("LMI_TEST", already_set)
    worker = LocalProcess("tests.core.workers.worker_targets:tell_variable", {"LMI_TEST": "given"})
    try:
        await worker.start()
        async with asyncio.timeout(LIMIT):
            assert await worker.receive() == expected
    finally:
        await worker.stop()


async def test_stop_leaves_no_process_behind(start: Start) -> None:
    worker = await start("tell_process")
    child = await process_id(worker)
    assert not is_gone(child)
    async with asyncio.timeout(LIMIT):
        await worker.stop()
    assert is_gone(child)
    assert worker.process_id is None
    await worker.stop()


async def frozen(worker: LocalProcess) -> int:
    """Wait until the child is frozen, and return its process id."""
    assert await worker.receive() == b"ready"
    worker.send(b"freeze")
    assert worker.process_id is not None
    while psutil.Process(worker.process_id).status() != psutil.STATUS_STOPPED:
        await asyncio.sleep(0.01)
    return worker.process_id


async def test_a_frozen_child_is_killed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_process, "STOP_SECONDS", 0.05)
    worker = await start("freeze")
    async with asyncio.timeout(LIMIT):
        child = await frozen(worker)
        await worker.stop()
    assert is_gone(child)


async def test_stop_again_after_one_that_was_cancelled(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = await start("freeze")
    async with asyncio.timeout(LIMIT):
        child = await frozen(worker)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(worker.stop(), 0.05)
        assert not is_gone(child)
        monkeypatch.setattr(local_process, "STOP_SECONDS", 0.05)
        await worker.stop()
    assert is_gone(child)


async def test_stop_of_a_child_that_is_gone(start: Start) -> None:
    worker = await start("exit_with_3")
    await death(worker)
    async with asyncio.timeout(LIMIT):
        await worker.stop()


async def test_stop_ends_a_wait(start: Start) -> None:
    worker = await start("tell_process")
    await process_id(worker)
    waiting = asyncio.create_task(death(worker))
    await asyncio.sleep(0)
    await worker.stop()
    assert await waiting == 0


async def until_gone(processes: list[int]) -> None:
    async with asyncio.timeout(LIMIT):
        while not all(is_gone(each) or psutil.Process(each).status() == psutil.STATUS_ZOMBIE for each in processes):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("end", ["stop", "kill", "killed by another", "end by itself"])
async def test_processes_that_a_child_has_started_end_with_it(
    start: Start, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "END_SECONDS", 0.2)
    worker = await start("start_others")
    ignoring, apart = (int(each) for each in (await worker.receive()).split())
    assert worker.process_id is not None
    if end == "stop":
        await worker.stop()
    elif end == "kill":
        worker.kill()
    elif end == "killed by another":
        os.kill(worker.process_id, signal.SIGKILL)
    else:
        worker.send(b"end")
    in_other_sessions = [apart] if end in ("stop", "kill") else []  # others are unknown once their parent is gone
    await until_gone([ignoring, *in_other_sessions])
    if not in_other_sessions:
        os.kill(apart, signal.SIGKILL)


OTHERS = PARENT.replace("tell_process", "start_others").replace(
    "await worker.receive()\n", "started = await worker.receive()\n"
)


async def test_processes_that_a_child_has_started_end_when_its_parent_is_killed() -> None:
    code = OTHERS.replace("worker.process_id", "started.decode()")
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    async with asyncio.timeout(LIMIT):
        started = [int(each) for each in (await parent.stdout.readline()).split()]
        assert len(started) == 2
        parent.kill()
        await parent.wait()
    await until_gone(started)


async def test_stop_before_start() -> None:
    worker = LocalProcess("tests.core.workers.worker_targets:echo")
    assert worker.process_id is None
    await worker.stop()


async def test_two_workers_are_independent(start: Start) -> None:
    first, second = await start("tell_process"), await start("tell_process")
    assert await process_id(first) != await process_id(second)
    await first.stop()
    second.send(b"end")
    assert await death(second) == 0


async def test_child_ends_when_its_parent_is_killed() -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    async with asyncio.timeout(LIMIT):
        child = int(await parent.stdout.readline())
        assert not is_gone(child)
        parent.kill()
        await parent.wait()
        # The child holds the pipe's other end as well: it ends with the last of the two.
        assert await parent.stdout.read() == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_to_the_whole_group_is_left_to_the_parent(start: Start, number: signal.Signals) -> None:
    worker = await start("tell_of_signals")
    child = await process_id(worker)
    os.kill(child, number)
    async with asyncio.timeout(LIMIT):
        worker.send(b"still there?")
        assert await worker.receive() == b"yes"
        await worker.stop()
    assert is_gone(child)


async def test_no_folder_is_left_once_both_are_connected(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Should the parent be killed, nobody could remove it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    worker = await start("echo_after_hello")
    assert [path.name[:4] for path in tmp_path.iterdir()] == ["lmi-"]
    async with asyncio.timeout(LIMIT):
        await worker.receive()
        assert list(tmp_path.iterdir()) == []
        worker.send(b"one")
        assert await worker.receive() == b"one"


ABANDONED = """\
import asyncio, os, signal
from lmi_core.workers.local_process import LocalProcess

async def main():
    worker = LocalProcess("tests.core.workers.worker_targets:wait")
    await worker.start()
    print(worker.process_id, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_child_whose_parent_is_killed_before_they_connect_removes_their_folder(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ABANDONED), stdout=asyncio.subprocess.PIPE, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert parent.stdout is not None
    async with asyncio.timeout(LIMIT):
        await parent.stdout.readline()
        assert [path.name[:4] for path in tmp_path.iterdir()] == ["lmi-"]
        parent.kill()
        await parent.wait()
        assert await parent.stdout.read() == b""  # the child is gone too
    assert list(tmp_path.iterdir()) == []
