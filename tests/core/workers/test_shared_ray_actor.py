"""A worker that servers share, as its actor answers their calls, without Ray."""

import threading
import time
from collections.abc import Iterator

import pytest
import zmq

from lmi_core.logs.logs import LOG_LEVEL_VARIABLE
from lmi_core.workers import ray_actor, shared_ray_actor
from lmi_core.workers.channel import Keys
from lmi_core.workers.conversation import Place
from lmi_core.workers.ray_actor import THREADS_VARIABLE
from lmi_core.workers.shared_ray_actor import Access, SharedRayWorker

TARGET = "tests.core.workers.worker_targets:load_and_echo"
LIMIT = 60.0


class Worker(SharedRayWorker):
    """A worker whose process is that of the tests, which does not end with it."""

    def __init__(self, target: str) -> None:
        self.ended = threading.Event()
        super().__init__(target)

    def place(self) -> Place:
        return Place("127.0.0.1", 1)

    def _exit(self) -> None:
        self.ended.set()

    def _exit_actor(self) -> None:
        self.ended.set()


class Server:
    """A server's connection to the worker."""

    def __init__(self, access: Access, name: str) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.set(zmq.IDENTITY, name.encode())
        self.socket.set(zmq.RCVTIMEO, int(LIMIT * 1000))
        Keys.new()._replace(server=access.key).use(self.socket)
        self.disconnections = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)  # from the first one on
        self.socket.connect(access.address)

    def ask(self, message: bytes) -> bytes:
        self.socket.send(message)
        return self.socket.recv()

    def close(self) -> None:
        self._context.destroy(linger=1000)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker that looks at its leases often."""
    monkeypatch.setattr(ray_actor, "configure_logging_of_another_program", lambda _: None)
    monkeypatch.setenv(LOG_LEVEL_VARIABLE, "info")
    monkeypatch.delenv(THREADS_VARIABLE, raising=False)  # with Ray's value, an actor asks Ray about its node
    monkeypatch.setattr(shared_ray_actor, "LOOK_SECONDS", 0.01)
    worker = Worker(TARGET)
    yield worker
    if (access := worker.join("last")) is not None:
        end(access)


def end(access: Access) -> None:
    server = Server(access, "last")
    if access.loads:
        server.ask(b"model")
    server.socket.send(b"end")
    server.close()


def joined(worker: SharedRayWorker, name: str) -> Access:
    """Return the access of a server that asks until it gets it."""
    deadline = time.monotonic() + LIMIT
    while (access := worker.join(name)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return access


def test_one_server_loads_the_model_and_the_others_wait_for_it(worker: Worker) -> None:
    access = joined(worker, "a")
    assert access.loads
    assert worker.join("b") is None
    first = Server(access, "a")
    assert first.ask(b"model") == b"loaded model"
    later = joined(worker, "b")
    assert later == access._replace(loads=False)
    second = Server(later, "b")
    first.socket.recv()  # who has the turn
    assert [first.ask(b"1"), second.ask(b"2"), first.ask(b"3")] == [b"1", b"2", b"3"]
    first.close()
    assert second.ask(b"4") == b"4"
    second.close()


def test_who_does_not_know_the_key_gets_no_connection(worker: Worker) -> None:
    stranger = Server(joined(worker, "a")._replace(key=Keys.new().public), "b")
    assert stranger.disconnections.poll(int(LIMIT * 1000))
    stranger.close()


def test_a_worker_ends_if_the_server_that_loads_the_model_dies(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What that server was sending, such as files, is incomplete; the next one that asks gets a new worker."""
    monkeypatch.setattr(shared_ray_actor, "LEASE_SECONDS", 0.0)
    access = joined(worker, "a")
    assert worker.join("b") is None
    assert worker.ended.is_set()
    end(access)


def test_a_worker_without_servers_ends(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_ray_actor, "LEASE_SECONDS", 0.1)
    access = joined(worker, "a")
    monkeypatch.setattr(shared_ray_actor, "UNUSED_SECONDS", 0.1)
    assert worker.ended.wait(LIMIT)
    assert worker.join("b") is None
    end(access)


def test_the_last_server_that_leaves_ends_it_for_those_that_come_too_late(worker: Worker) -> None:
    access = joined(worker, "a")
    first = Server(access, "a")
    first.ask(b"model")
    first.close()
    joined(worker, "b")
    worker.leave("a")
    assert not worker.ended.is_set()
    worker.leave("b")
    assert worker.ended.is_set()
    assert worker.join("c") is None
    end(access._replace(loads=False))


def test_a_server_that_was_late_to_renew_its_lease_keeps_the_worker(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Server(joined(worker, "a"), "a")
    first.ask(b"model")
    monkeypatch.setattr(shared_ray_actor, "LEASE_SECONDS", 0.0)
    worker.renew("a")
    joined(worker, "b")
    worker.leave("b")
    assert not worker.ended.is_set()
    first.close()
