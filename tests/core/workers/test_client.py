"""A client whose workers are tasks of the same process: nothing but an endpoint knows of processes."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec
import pytest

from lmi_core.errors import BackendUnhealthy, ConfigurationError, GenerationFailed, OutOfMemory
from lmi_core.workers.client import WorkerClient
from lmi_core.workers.conversation import Conversation, Place, WorkerDied
from lmi_core.workers.isolation import Presence
from lmi_core.workers.item_queue import ItemQueue
from lmi_core.workers.messages import ALIVE, STARTED, Alive, LoadFailed, Ping, Progress, Started, encode
from lmi_core.workers.replicas import Replicas
from lmi_core.workers.resumption import Resumption
from tests.virtual_time import in_virtual_time

HEARTBEAT = 10.0  # seconds


class Load(msgspec.Struct, tag=True):
    step: int


class Loaded(msgspec.Struct, tag=True):
    step: int


class Count(msgspec.Struct, tag=True):
    request_id: int
    start: int
    stop: int


class Drop(msgspec.Struct, tag=True):
    request_id: int


class Number(msgspec.Struct, tag=True):
    request_id: int
    number: int
    final: bool


FromWorker = Started | Progress | Loaded | LoadFailed | Alive | Number
decode_to_worker = msgspec.msgpack.Decoder(Load | Count | Drop | Ping).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode


class Task:
    """A worker that gives a number each second to each request."""

    process_id = files = None

    def __init__(self, answer: msgspec.Struct | None) -> None:
        self.dropped: list[int] = []
        self.frozen = asyncio.Event()
        self.stopped = False
        self.place: Place | None = None
        self.seconds_to_start = 0.0
        self._answer = answer  # to what it is to load; None: it dies of that
        self._received: asyncio.Queue[bytes] = asyncio.Queue()
        self._sent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._work: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await asyncio.sleep(self.seconds_to_start)
        self._work = asyncio.create_task(self._serve())

    def send(self, message: bytes) -> None:
        self._received.put_nowait(message)

    async def receive(self) -> bytes:
        message = await self._sent.get()
        if message is None:
            self._sent.put_nowait(None)
            raise WorkerDied("the task ended")
        return message

    def kill(self) -> None:
        for task in (self._work, *self._tasks.values()):
            if task is not None:
                task.cancel()
        self._sent.put_nowait(None)

    async def stop(self) -> None:
        self.stopped = True
        self.kill()

    async def _serve(self) -> None:
        self._sent.put_nowait(STARTED)
        load = decode_to_worker(await self._received.get())
        assert isinstance(load, Load)
        self._sent.put_nowait(encode(Progress("loading", 1, 2)))
        if self._answer is None:
            self._sent.put_nowait(None)
            return
        self._sent.put_nowait(encode(self._answer))
        while not self.frozen.is_set():
            match decode_to_worker(await self._received.get()):
                case Count() as count:
                    self._tasks[count.request_id] = asyncio.create_task(self._count(count, load.step))
                case Drop(request_id):
                    self._tasks[request_id].cancel()
                    self.dropped.append(request_id)
                case Ping() if not self.frozen.is_set():
                    self._sent.put_nowait(ALIVE)

    async def _count(self, count: Count, step: int) -> None:
        for number in range(count.start, count.stop, step):
            await asyncio.sleep(1)
            if not self.frozen.is_set():
                last = number + step >= count.stop
                self._sent.put_nowait(encode(Number(count.request_id, number, last)))


class Client(WorkerClient[FromWorker, int, ItemQueue[int]]):
    """What is this client's own: requests that count."""

    def __init__(self, *answers: msgspec.Struct | None, resume: bool = False) -> None:
        self.tasks = [Task(answer) for answer in answers]
        self.losses: list[str] = []
        waiting = iter(self.tasks)
        super().__init__(lambda: next(waiting), decode_from_worker, len(answers) - 1, HEARTBEAT)
        replicas = Replicas(lambda _: self)
        replicas.members.append(self)
        self._resumption = Resumption(replicas, enabled=resume)
        self._ids = iter(range(100))

    def count(self, stop: int) -> AsyncGenerator[int, None]:
        given: list[int] = []

        def note(number: int) -> int:
            given.append(number)
            return len(given)

        return self._resumption.stream(lambda _, presence: self._run(len(given), stop, presence), note)

    async def _run(self, start: int, stop: int, presence: Presence) -> AsyncGenerator[int, None]:
        request_id = next(self._ids)
        numbers = ItemQueue[int](on_complete=presence.leave)
        with self._in_worker(request_id, numbers, Count(request_id, start, stop), Drop(request_id)):
            for _ in range(start, stop):
                yield await numbers.get()

    async def _load_message(self, worker: Conversation[FromWorker]) -> Load:
        return Load(1)

    def _on_loaded(self, answer: FromWorker) -> None:
        assert answer == Loaded(1)

    def _deliver(self, message: FromWorker) -> None:
        assert isinstance(message, Number), message
        self._requests[message.request_id].put(message.number, final=message.final)

    def _lose(self, why: str) -> None:
        self.losses.append(why)
        super()._lose(why)


async def numbers(client: Client, stop: int) -> list[int]:
    return [number async for number in client.count(stop)]


@in_virtual_time
async def test_requests_and_what_the_worker_tells_of_its_loading() -> None:
    client, reports = Client(Loaded(1)), list[tuple[str, int | None, int | None]]()
    client.report = lambda *report: reports.append(report)
    with pytest.raises(BackendUnhealthy, match="the engine is starting"):
        client.check_health()
    await client.start()
    assert reports == [("loading", 1, 2)]
    assert client.process_id is None
    asked = [asyncio.create_task(numbers(client, count)) for count in (3, 2)]
    assert await asyncio.gather(*asked) == [[0, 1, 2], [0, 1]]
    await client.stop()
    assert client.tasks[0].stopped
    assert client.losses == ["the engine was stopped"]


@in_virtual_time
async def test_a_request_that_is_closed_is_aborted_in_the_worker() -> None:
    client = Client(Loaded(1))
    await client.start()
    asked = client.count(50)
    assert await anext(asked) == 0
    await asked.aclose()
    assert await numbers(client, 1) == [0]
    assert client.tasks[0].dropped == [0]  # not the one that is complete
    await client.stop()


def kill_worker(task: Task) -> None:
    task.kill()


def freeze(task: Task) -> None:
    task.frozen.set()


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (kill_worker, "the task ended"),
        (freeze, "the worker gave no sign of life for 10 seconds (option.heartbeat_timeout) and was killed"),
    ],
)
@pytest.mark.parametrize("resume", [True, False])
def test_a_worker_is_replaced_and_its_requests_go_on(end: Callable[[Task], None], why: str, *, resume: bool) -> None:
    @in_virtual_time
    async def replaced() -> None:
        client = Client(Loaded(1), Loaded(1), resume=resume)
        await client.start()
        asked = [asyncio.create_task(numbers(client, 5)) for _ in range(2)]
        await asyncio.sleep(2.5)
        end(client.tasks[0])
        if resume:
            assert await asyncio.gather(*asked) == [[*range(5)]] * 2
        else:
            for each in asked:
                with pytest.raises(GenerationFailed, match="the request was lost: the"):
                    await each
        await client.available()
        assert (client.losses, client.restarts.count) == ([why], 1)
        await client.stop()

    replaced()


@pytest.mark.parametrize("place", [None, Place("10.0.0.2", 1)])
def test_a_worker_on_another_node_has_time_to_find_one_and_to_load(place: Place | None) -> None:
    @in_virtual_time
    async def restarted() -> None:
        client = Client(Loaded(1), Loaded(1))
        for task in client.tasks:
            task.place = place
        await client.start()
        client.tasks[1].seconds_to_start = 500
        client.tasks[0].kill()
        await asyncio.sleep(1)
        if place is None:
            with pytest.raises(BackendUnhealthy, match="is not restarted again"):
                await client.available()
        else:
            await client.available()
        await client.stop()

    restarted()


@in_virtual_time
async def test_a_worker_that_answers_pings_is_left_alone() -> None:
    client = Client(Loaded(1))
    await client.start()
    await asyncio.sleep(20 * HEARTBEAT)
    client.check_health()
    await client.stop()


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (LoadFailed("no such file"), ConfigurationError, "^no such file$"),
        (LoadFailed("too large", out_of_memory=True), OutOfMemory, "^too large$"),
        (None, ConfigurationError, "^the engine could not be started: the task ended; its log above says why$"),
    ],
)
def test_what_cannot_be_loaded(answer: LoadFailed | None, kind: type[ConfigurationError], message: str) -> None:
    @in_virtual_time
    async def refused() -> None:
        client = Client(answer)
        with pytest.raises(ConfigurationError, match=message) as raised:
            await client.start()
        assert type(raised.value) is kind
        assert client.tasks[0].stopped
        await client.stop()

    refused()


@in_virtual_time
async def test_a_replacement_that_never_gets_ready_is_ended_and_counts_as_a_failed_restart() -> None:
    client = Client(Loaded(1), Progress("still loading"))
    await client.start()
    client.tasks[0].kill()
    await client.restarts.given_up.wait()
    with pytest.raises(BackendUnhealthy, match="is not restarted again, after 1 consecutive restarts"):
        await client.available()
    assert client.losses == ["the task ended"]
    assert client.tasks[1].stopped
    await client.stop()


@in_virtual_time
async def test_stopping_while_a_dead_worker_is_ended_frees_it() -> None:
    class SlowToEnd(Task):
        async def stop(self) -> None:
            await asyncio.sleep(1)
            await super().stop()

    client = Client(Loaded(1), Loaded(1))
    client.tasks[0] = SlowToEnd(Loaded(1))
    client._endpoint = lambda: client.tasks[0]
    await client.start()
    client.tasks[0].kill()
    await asyncio.sleep(0.5)
    await client.stop()
    assert client.tasks[0].stopped
