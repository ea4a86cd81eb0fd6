"""The gRPC server's life: its port, and its end while requests run."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from lmi_core.errors import ConfigurationError
from lmi_handlers.kserve_grpc.server import GrpcServer
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.kserve_grpc.asking import infer_request, refusal, stub_of
from tests.lmi_process import LMI, lmi_serve

TEXT = ("text_input", "BYTES", [1], {"bytes_contents": [b"hi"]})
STREAM = ("stream", "BOOL", [1], {"bool_contents": [True]})


@pytest.fixture
def directory(model_dir: ModelDirectory) -> Path:
    return model_dir({"serving.properties": SCRIPTED + "option.scripted_delay=0.2\n"})


async def server_of(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}), grpc=True)


async def test_a_port_that_is_taken(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await server_of(serve, model_dir)
    port = int(server.grpc_address.rpartition(":")[2])
    message = (
        rf"cannot listen on 127\.0\.0\.1:{port} for gRPC: the port is taken, .* Choose with --host and --grpc-port"
    )
    with pytest.raises(ConfigurationError, match=message):
        await GrpcServer(server.dispatcher, "127.0.0.1", port).listen()


async def test_new_requests_while_others_finish(serve: Serve, model_dir: ModelDirectory) -> None:
    """New requests are refused, one by one in a stream, and running ones are not disturbed."""
    server = await server_of(serve, model_dir)
    held = Script("one two", hold=True)
    server.scripted.enqueue(held)
    message = "the server is shutting down"
    async with stub_of(server) as stub:
        stream = stub.ModelStreamInfer()
        await stream.write(infer_request(TEXT, STREAM, id="held"))
        await held.started.wait()
        drained = asyncio.create_task(server.dispatcher.drain(30))
        await asyncio.sleep(0)
        assert await refusal(server, infer_request(TEXT)) == ("UNAVAILABLE", message)
        await stream.write(infer_request(TEXT, id="late"))
        found = [await stream.read() for _ in range(3)]
        assert [each.error_message for each in found] == ["", "", message]
        assert [each.infer_response.id for each in found] == ["held", "held", "late"]
        assert not (await stub.ServerReady(service_pb2.ServerReadyRequest())).ready
        assert not drained.done()
        stream.cancel()
        await drained


async def test_sigterm(directory: Path) -> None:
    """A stream that runs ends by itself, and so does the process."""
    async with lmi_serve(directory, "--port", 0, "--grpc-port", 0) as server:
        line = await server.line_with("Ready")
        address = line.partition("gRPC on ")[2].split()[0]
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            found = []
            async for response in stub.ModelStreamInfer(iter([infer_request(TEXT, STREAM)])):
                found.append(bytes(response.infer_response.raw_output_contents[0][4:]))
                if len(found) == 1:
                    server.process.send_signal(signal.SIGTERM)
        assert b"".join(found) == b"Deep Learning is a really cool field."
        assert await server.process.wait() == 0


async def test_command_line_with_a_port_that_is_taken(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await server_of(serve, model_dir)
    port = server.grpc_address.rpartition(":")[2]
    path = server.model.plan.directory
    process = await asyncio.create_subprocess_exec(
        LMI, "serve", str(path), "--port", "0", "--grpc-port", port, stderr=asyncio.subprocess.PIPE
    )
    _, log = await process.communicate()
    assert process.returncode == 2
    assert (
        log.decode().splitlines()[-1].startswith(f"lmi: cannot listen on 127.0.0.1:{port} for gRPC: the port is taken")
    )
