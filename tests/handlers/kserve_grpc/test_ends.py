"""Calls that their clients end, or do not read, and what the engine still does for them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc

from lmi_handlers.http.connections.limits import ConnectionLimits
from lmi_handlers.kserve_grpc.server import GrpcServer
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.kserve_grpc.asking import infer_request, stub_of
from tests.loop_clock import until

TEXT = ("text_input", "BYTES", [1], {"bytes_contents": [b"hi"]})
STREAM = ("stream", "BOOL", [1], {"bool_contents": [True]})
TOKENS = ("max_tokens", "INT32", [1], {"int_contents": [2000]})
LONG_WORDS = ("x" * 20_000 + " ") * 1500  # more than lies between a server and a client that does not read


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}), grpc=True)


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
async def test_deadline_of_a_call_ends_its_work(server: RunningServer, method: str, *, begun: bool) -> None:
    tries = (0.3, 3, 30)  # seconds
    held = [Script("one" if begun else "", hold=True) for _ in tries]
    server.scripted.enqueue(*held)
    async with stub_of(server) as stub:
        for seconds in tries:  # in the first of which a busy machine may not have begun
            asked = infer_request(TEXT) if method == "ModelInfer" else iter([infer_request(TEXT, STREAM)])
            call = getattr(stub, method)(asked, timeout=seconds)
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            if server.scripted.history:
                break
        await held[0].closed.wait()
        await until(lambda: server.dispatcher.in_flight == 0)


async def test_stream_that_is_cancelled_ends_its_work(server: RunningServer) -> None:
    scripts = [Script("one", hold=True), Script(hold=True)]
    server.scripted.enqueue(*scripts)
    async with stub_of(server) as stub:
        stream = stub.ModelStreamInfer()
        for _ in scripts:
            await stream.write(infer_request(TEXT, STREAM))
        await asyncio.gather(*(script.started.wait() for script in scripts))
        stream.cancel()
        await asyncio.gather(*(script.closed.wait() for script in scripts))
    assert server.dispatcher.in_flight == 0


@asynccontextmanager
async def impatient(server: RunningServer, write_timeout: float) -> AsyncIterator[Any]:
    """Yield a stub of a server that waits only so long for clients that do not read."""
    grpc_server = GrpcServer(server.dispatcher, "127.0.0.1", 0, limits=ConnectionLimits(write_timeout=write_timeout))
    await grpc_server.listen()
    try:
        async with grpc.aio.insecure_channel(grpc_server.address) as channel:
            yield service_pb2_grpc.GRPCInferenceServiceStub(channel)
    finally:
        await grpc_server.stop()


async def until_error(stream: Any) -> AsyncIterator[Any]:
    with suppress(grpc.aio.AioRpcError):
        async for response in stream:
            yield response


async def test_client_that_reads_nothing_holds_no_place(server: RunningServer) -> None:
    script = Script(LONG_WORDS)
    server.scripted.enqueue(script)
    async with impatient(server, 0.5) as stub:
        stream = stub.ModelStreamInfer()
        await stream.write(infer_request(TEXT, STREAM, TOKENS))
        async with asyncio.timeout(60):
            await script.closed.wait()
        assert not script.started.is_set(), "it was said to its end"
        while server.dispatcher.in_flight:
            await asyncio.sleep(0.01)
        num_read = len([_ async for _ in until_error(stream)])  # it reads on, too late
        assert num_read < 1500
        assert await stream.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await stream.details() == "the client read nothing for 0.5 seconds (write_timeout)"


async def test_stream_that_is_silent_for_longer_is_no_fault_of_its_client(server: RunningServer) -> None:
    prefilled = asyncio.Event()
    server.scripted.enqueue(Script("one", prefilled=prefilled))
    async with impatient(server, 0.1) as stub:
        stream = stub.ModelStreamInfer()
        await stream.write(infer_request(TEXT, STREAM))
        asyncio.get_running_loop().call_later(0.5, prefilled.set)
        assert (await stream.read()).error_message == ""
        stream.cancel()


async def test_metadata_say_when_to_come_back(serve: Serve, model_dir: ModelDirectory) -> None:
    one = "job_queue_size=1\noption.max_rolling_batch_size=1\n"
    server = await serve(model_dir({"serving.properties": SCRIPTED + one}), grpc=True)
    scripts = [Script("one", hold=True) for _ in range(2)]
    server.scripted.enqueue(*scripts)
    async with stub_of(server) as stub:
        stream = stub.ModelStreamInfer()
        for _ in scripts:
            await stream.write(infer_request(TEXT, STREAM))
        await asyncio.gather(*(script.started.wait() for script in scripts))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ModelInfer(infer_request(TEXT))
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        advice = dict(raised.value.trailing_metadata())
        assert (advice["retry-after"], advice["grpc-retry-pushback-ms"]) == ("1", "1000")
        stream.cancel()
        await asyncio.gather(*(script.closed.wait() for script in scripts))
