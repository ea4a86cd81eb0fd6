import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
import zmq

from lmi_core.workers import worker_host
from lmi_core.workers.channel import SharedChannel
from lmi_core.workers.conversation import WorkerDied
from lmi_core.workers.messages import STARTED
from lmi_core.workers.shared_worker import HOST_GONE, SharedWorker
from lmi_core.workers.worker_host import WorkerHost

ROOT = Path(__file__).parents[3]
LIMIT = 60.0
TARGETS = "tests.core.workers.worker_targets"

Start = Callable[..., Awaitable[SharedWorker]]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find this package, wherever the tests were started."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


@pytest_asyncio.fixture
async def host() -> AsyncIterator[WorkerHost]:
    with tempfile.TemporaryDirectory() as folder:  # a short path, as sockets need
        host = WorkerHost(Path(folder))
        await host.start()
        yield host
        await host.stop()


@pytest_asyncio.fixture
async def start(host: WorkerHost) -> AsyncIterator[Start]:
    """`await start("key")` starts an endpoint of the worker with that key; it stops when the test ends."""
    workers: list[SharedWorker] = []

    async def started(key: str, target: str = "tell_sharers") -> SharedWorker:
        worker = SharedWorker(host.address, key, f"{TARGETS}:{target}", {})
        workers.append(worker)
        async with asyncio.timeout(LIMIT):
            await worker.start()
            assert await worker.receive() == STARTED
        return worker

    yield started
    for worker in workers:
        await worker.stop()


async def request(worker: SharedWorker, message: str) -> tuple[int, str]:
    """Return the process that answers a message, and the message in its answer."""
    worker.send(message.encode())
    async with asyncio.timeout(LIMIT):
        process_id, answer = (await worker.receive()).decode().split()
    return int(process_id), answer


async def death(worker: SharedWorker) -> WorkerDied:
    async with asyncio.timeout(LIMIT):
        with pytest.raises(WorkerDied) as raised:
            await worker.receive()
    return raised.value


async def test_servers_with_a_key_share_a_worker(start: Start) -> None:
    first, second, other = await start("a"), await start("a"), await start("b")
    process_id = first.process_id
    assert await request(first, "one") == (process_id, "one")
    assert await request(second, "two") == (process_id, "two")
    assert await request(other, "three") == (other.process_id, "three")
    assert second.process_id == process_id != other.process_id


async def test_every_server_learns_of_a_death_and_gets_the_same_new_worker(start: Start) -> None:
    first, second = await start("a"), await start("a")
    first.kill()
    deaths = [await death(first), await death(second)]
    assert {str(each) for each in deaths} == {
        "the worker ended with exit code -9, as if killed by the system for lack of memory"
    }
    assert all(each.out_of_memory for each in deaths)
    again, other = await start("a"), await start("a")
    assert again.process_id == other.process_id != first.process_id


async def test_the_last_server_to_release_a_worker_ends_it(start: Start) -> None:
    first, second = await start("a"), await start("a")
    assert first.process_id is not None
    process = psutil.Process(first.process_id)
    await first.stop()
    assert await request(second, "one") == (process.pid, "one")
    await second.stop()
    assert not process.is_running()


async def test_a_worker_outlives_servers_that_die(start: Start) -> None:
    """The server that replaces one need not load the model again."""
    first = await start("a")
    assert first._writer is not None
    first._writer.close()
    await first._writer.wait_closed()
    again = await start("a")
    assert again.process_id == first.process_id


async def test_a_worker_without_servers_is_ended(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_host, "UNUSED_SECONDS", 0.01)
    first = await start("a")
    assert first.process_id is not None
    process = psutil.Process(first.process_id)
    assert first._writer is not None
    first._writer.close()
    await asyncio.to_thread(process.wait, LIMIT)


async def test_a_worker_that_hangs_before_it_runs_is_replaced(host: WorkerHost, start: Start) -> None:
    hanging = SharedWorker(host.address, "a", f"{TARGETS}:hang", {})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await hanging.start()
    hanging.kill()
    await hanging.stop()
    await start("a")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), zmq.ZMQError(24)])
async def test_a_worker_for_which_there_are_no_descriptors(
    start: Start, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(worker_host, "LocalProcess", fail)
    with pytest.raises(WorkerDied, match="the worker could not be started: "):
        await start("a")


async def test_a_worker_that_does_not_start(start: Start) -> None:
    with pytest.raises(WorkerDied, match="ended with exit code 3"):
        await start("a", "exit_with_3")


async def test_the_end_of_the_host(host: WorkerHost, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    worker = await start("a")
    await host.stop()
    await death(worker)
    assert not [record for record in caplog.records if record.name == "asyncio"]
    unreachable = SharedWorker(host.address, "a", "", {})
    with pytest.raises(WorkerDied, match=HOST_GONE):
        await unreachable.start()
    await unreachable.stop()


def test_a_message_to_a_server_that_is_gone(tmp_path: Path) -> None:
    channel = SharedChannel(f"ipc://{tmp_path}/shared", f"ipc://{tmp_path}/parent")
    with zmq.Context() as context, context.socket(zmq.DEALER) as server:
        server.identity = b"one"
        server.connect(f"ipc://{tmp_path}/shared")
        server.send(b"hello")
        assert channel.receive() == b"hello"
        assert channel.sender == "one"
        assert channel.send_to("one", b"answer")
        assert server.recv() == b"answer"
    while channel.send_to("one", b"answer"):
        pass  # the kernel has yet to report the end of the connection
    channel.send(b"to all that are left")
    channel.close()
