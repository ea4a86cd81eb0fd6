"""Messages that are damaged, missing or late, and connections that say nothing."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, suppress
from socket import create_connection, socket

import grpc
import pytest
from tritonclient.grpc import service_pb2

from lmi_handlers.http.connections.limits import ConnectionLimits
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, running_server
from tests.handlers.kserve_grpc.asking import infer_request, stub_of

FEW = 3
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
METHODS = ["ModelInfer", "ModelMetadata", "ModelReady", "RepositoryIndex"]
DAMAGED = 120
TEXT = ("text_input", "BYTES", [1], {"bytes_contents": [b"hi"]})


@pytest.fixture
async def server(model_dir: ModelDirectory) -> AsyncIterator[RunningServer]:
    limits = ConnectionLimits(max_connections=FEW, header_timeout=2, keep_alive_timeout=1, body_timeout=0.2)
    directory = model_dir({"serving.properties": SCRIPTED + "max_request_size=1000\n"})
    async with running_server(directory, grpc=True, limits=limits) as server:
        yield server


def mutations(message: bytes) -> list[bytes]:
    chance = random.Random(1)
    found = []
    for _ in range(DAMAGED):
        damaged = bytearray(message)
        for _ in range(chance.randint(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        found.append(bytes(damaged))
    return found


async def status(
    channel: grpc.aio.Channel, method: str, messages: list[bytes], metadata: Mapping[str, str] | None = None
) -> str:
    ask = channel.stream_stream(f"/inference.GRPCInferenceService/{method}")
    call = ask(iter(messages), metadata=tuple((metadata or {}).items()))
    with suppress(grpc.aio.AioRpcError):
        async for _ in call:
            pass
    return str((await call.code()).name)


async def test_damaged_messages(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    messages = mutations(infer_request(TEXT, id="a").SerializeToString())
    with caplog.at_level(logging.INFO):
        async with grpc.aio.insecure_channel(server.grpc_address) as channel:
            found = Counter(
                [
                    await status(channel, method, [message])
                    for message in messages
                    for method in ("ModelInfer", "ModelStreamInfer")
                ]
            )
            damaged = [await status(channel, method, [b"\xff"]) for method in METHODS]
    assert set(found) <= {"OK", "NOT_FOUND", "INVALID_ARGUMENT"}
    assert found["INVALID_ARGUMENT"] > DAMAGED
    assert damaged == ["INVALID_ARGUMENT"] * len(METHODS)
    assert not [record for record in caplog.records if record.exc_info or record.levelno > logging.INFO]
    lines = [record for record in caplog.records if "a damaged message of" in record.getMessage()]
    assert 0 < len(lines) < found["INVALID_ARGUMENT"]


async def test_call_without_a_message(server: RunningServer) -> None:
    async with grpc.aio.insecure_channel(server.grpc_address) as channel:
        assert await status(channel, "ModelInfer", []) == "INVALID_ARGUMENT"


async def test_message_that_never_comes(server: RunningServer) -> None:
    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async with grpc.aio.insecure_channel(server.grpc_address) as channel:
        call = channel.stream_unary("/inference.GRPCInferenceService/ModelInfer")(nothing())
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "(body_timeout)" in str(await call.details())
        call.cancel()


async def until_closed(loop: asyncio.AbstractEventLoop, client: socket) -> bytes:
    """Return what the server sends until it closes the connection, which it must."""
    received = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(60):
            while data := await loop.sock_recv(client, 4096):
                received += data
    return received


@pytest.mark.parametrize("sent", [b"", PREFACE])
async def test_connections_that_say_nothing(server: RunningServer, sent: bytes) -> None:
    """Silent connections are bounded in number and time; then other clients have their places."""
    host, _, port = server.grpc_address.rpartition(":")
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        silent = [stack.enter_context(create_connection((host, int(port)))) for _ in range(2 * FEW)]
        for each in silent:
            each.setblocking(False)
            if sent:
                await loop.sock_sendall(each, sent)
        received = await asyncio.gather(*(until_closed(loop, each) for each in silent))
        assert len([each for each in received if each]) == FEW  # which got the server's settings
        async with stub_of(server) as stub:
            ready = await stub.ServerReady(service_pb2.ServerReadyRequest(), wait_for_ready=True, timeout=60)
    assert ready.ready
