from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from lmi_core.generation.output import GenerationStep, Token
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.workers.channel import SharedChannel
from lmi_core.workers.messages import LoadFailed, encode
from lmi_core.workers.trial_turn import Holder, Turn
from lmi_plugins.torch_engine.messages.protocol import (
    AdapterAnswer,
    Admitted,
    Busy,
    Failure,
    Figures,
    FromWorker,
    Loaded,
    Steps,
    decode_from_worker,
)
from lmi_plugins.torch_engine.worker.sharing import (
    MARK,
    figures_of_each,
    greet,
    send_answer,
    send_begun,
    send_failure,
    send_figures,
    send_loaded,
    send_results,
    unique,
)

STEP = GenerationStep([Token(1, "a")])
FAILURE = Failure("", "generation_failed", "it failed")


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[SharedChannel]:
    channel = SharedChannel(f"ipc://{tmp_path}/shared", f"ipc://{tmp_path}/parent")
    yield channel
    channel.close()


@contextmanager
def server(name: str, channel: SharedChannel, tmp_path: Path) -> Iterator["zmq.SyncSocket"]:
    """A server that shares the worker, and has sent it a message."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.identity = name.encode()
        socket.connect(f"ipc://{tmp_path}/shared")
        socket.send(b"hello")
        assert channel.receive() == b"hello"
        yield socket


def received(server: "zmq.SyncSocket") -> FromWorker:
    assert server.poll(10_000)
    message: FromWorker = decode_from_worker(server.recv())
    return message


def never(request_id: str) -> None:
    raise AssertionError(request_id)


def test_each_server_gets_its_own_results(channel: SharedChannel, tmp_path: Path) -> None:
    with server("a", channel, tmp_path) as first:
        of_first = unique("1", channel)
        with server("b", channel, tmp_path) as second, server("c", channel, tmp_path) as idle:
            of_second = f"b{MARK}1"
            assert of_first != of_second
            failure = msgspec.structs.replace(FAILURE, request_id=of_second)
            results = Steps([(of_first, STEP), (of_second, STEP)], [failure], [(of_first, 0, b"vector")])
            send_results(results, channel, never)
            assert received(first) == Steps([("1", STEP)], [], [("1", 0, b"vector")])
            assert received(second) == Steps([("1", STEP)], [msgspec.structs.replace(FAILURE, request_id="1")], [])
            assert received(idle) == Busy()


def test_the_requests_of_a_server_that_is_gone_are_aborted(channel: SharedChannel, tmp_path: Path) -> None:
    aborted: list[str] = []
    with server("a", channel, tmp_path) as first:
        of_first = unique("1", channel)
        with server("b", channel, tmp_path):
            of_second = unique("1", channel)
        while not aborted:  # the kernel has yet to report the end of the connection
            unfinished = [f"b{MARK}waiting", of_first]
            send_results(Steps([(of_first, STEP), (of_second, STEP)], []), channel, aborted.append, unfinished)
        assert sorted(aborted) == [of_second, f"b{MARK}waiting"]
        assert received(first) == Steps([("1", STEP)], [])


def test_a_server_that_comes_later_gets_what_the_first_one_got(channel: SharedChannel, tmp_path: Path) -> None:
    loaded = Loaded(2048, ["french"])
    with server("a", channel, tmp_path) as first:
        send_loaded(loaded, channel)
        assert [received(first), received(first)] == [loaded, Turn(Holder.NOBODY)]
        with server("b", channel, tmp_path) as second:
            greet(channel)
            assert [received(second), received(second)] == [loaded, Turn(Holder.NOBODY)]
        assert not first.poll(0)


def test_all_learn_why_the_model_cannot_be_loaded(channel: SharedChannel, tmp_path: Path) -> None:
    failure = LoadFailed("no such model")
    with server("a", channel, tmp_path) as first, zmq.Context() as context, context.socket(zmq.DEALER) as second:
        second.identity = b"b"
        second.connect(f"ipc://{tmp_path}/shared")
        second.send(b"hello")  # is not received
        assert channel._socket.poll(10_000)
        send_failure(failure, channel)
        assert received(first) == received(second) == failure


def test_only_its_own_sequences_run_for_each_server(channel: SharedChannel, tmp_path: Path) -> None:
    figures = EngineFigures(running=3, waiting=1, cache_usage=0.5)
    with server("a", channel, tmp_path) as first:
        of_first = unique("1", channel)
        with server("b", channel, tmp_path):
            of_second = unique("1", channel)
            shares = figures_of_each(figures, [of_first, of_second, of_second], channel)
        assert shares == {
            "a": EngineFigures(running=1, waiting=1, cache_usage=0.5),
            "b": EngineFigures(running=2, waiting=1, cache_usage=0.5),
        }
        send_figures("a", shares["a"], channel)
        assert received(first) == Figures(shares["a"])


def test_each_server_learns_which_of_its_requests_have_begun(channel: SharedChannel, tmp_path: Path) -> None:
    with server("a", channel, tmp_path) as first, server("b", channel, tmp_path) as second:
        send_begun([f"a{MARK}1", f"b{MARK}1"], channel)
        assert received(first) == received(second) == Admitted(["1"])


def test_all_learn_the_adapters_and_the_caller_its_answer(channel: SharedChannel, tmp_path: Path) -> None:
    with server("a", channel, tmp_path) as first, server("b", channel, tmp_path) as second:
        send_answer(AdapterAnswer(unique("7", channel), ["french"], None), channel)
        told, answer = received(second), received(second)
        assert isinstance(told, AdapterAnswer)
        assert told.names == ["french"]
        assert told.call_id != "7"
        assert answer == AdapterAnswer("7", ["french"], None)
        assert received(first) == told
        assert encode(told) != encode(answer)
