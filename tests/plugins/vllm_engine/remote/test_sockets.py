"""The sockets between vLLM's client in the server and a core on another machine."""

import threading
from contextlib import suppress
from typing import Any

import pytest
import zmq
from vllm.v1.engine import core_client, utils

from lmi_core.workers.channel import Keys
from lmi_plugins.vllm_engine.remote.sockets import CoreSockets

MILLISECONDS = 10_000  # for what must arrive


def input_socket(context: "zmq.Context[Any]") -> "zmq.Socket[Any]":
    """Return the socket of a client at which its core connects."""
    socket: zmq.Socket[Any] = core_client.make_zmq_socket(context, "tcp://127.0.0.1:0", zmq.ROUTER, bind=True)
    return socket


def connected(context: "zmq.Context[Any]", address: str, keys: Keys | None = None) -> "zmq.Socket[Any]":
    """Return a core's socket that has sent a message."""
    socket: zmq.Socket[Any] = context.socket(zmq.DEALER)
    socket.linger = 0
    if keys is not None:
        keys.use(socket)
    socket.connect(address)
    with suppress(zmq.Again):  # it has been refused already
        socket.send(b"ready", zmq.DONTWAIT)
    return socket


def test_only_a_core_with_the_keys_is_heard() -> None:
    sockets = CoreSockets("127.0.0.1")
    context: zmq.Context[Any]
    with sockets.used(), zmq.Context() as context, input_socket(context) as inputs:
        address, stranger = inputs.get_string(zmq.LAST_ENDPOINT), Keys.new()._replace(server=Keys.new().public)
        with connected(context, address), connected(context, address, stranger):
            with connected(context, address, sockets.keys):
                assert inputs.poll(MILLISECONDS)
                assert inputs.recv_multipart()[1] == b"ready"
            assert not inputs.poll(100)


def test_a_client_stops_waiting_for_a_core_that_has_ended() -> None:
    sockets = CoreSockets("127.0.0.1")
    with sockets.used(), utils.zmq_socket_ctx("tcp://127.0.0.1:29550", zmq.ROUTER, bind=True) as meeting:
        thread = threading.Thread(target=sockets.interrupt)
        thread.start()
        assert meeting.poll(MILLISECONDS)
        identity, message = meeting.recv_multipart()
        assert len(identity) > 2  # that of a core has two bytes; vLLM raises an error for an unknown one
        assert message == b""
        thread.join()
    with sockets.used(), pytest.raises(RuntimeError), utils.zmq_socket_ctx("tcp://127.0.0.1:29550", zmq.ROUTER):
        pass


def test_other_sockets_of_vllm_stay_as_they_are() -> None:
    context: zmq.Context[Any]
    with (
        zmq.Context() as context,
        input_socket(context) as inputs,
        connected(context, inputs.get_string(zmq.LAST_ENDPOINT)),
    ):
        assert inputs.poll(MILLISECONDS)
