"""Triton's gRPC client, unmodified, where requests fail, are ended, or cannot be taken."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from tritonclient.grpc import InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from lmi_plugins.backends.scripted import Script
from tests.clients.triton_grpc import client_of, prompt, stream, tensor, text
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.triton.tensor_backend import FAILING_TOKEN, PROPERTIES, BackwardsPlugin, backwards
from tests.loop_clock import until


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}), grpc=True)


@pytest.fixture
async def tensors(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[BackwardsPlugin()], grpc=True)


async def test_an_error_does_not_end_the_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two", error="the engine fell over"), Script("three"))
    ended = asyncio.Event()

    async def asked() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "model", "inputs": text(stream=True), "request_id": "1"}
        await ended.wait()
        yield {"model_name": "other", "inputs": text(), "request_id": "2"}
        yield {"model_name": "model", "inputs": text(stream=True, exclude_input_in_output=False), "request_id": "3"}
        yield {"model_name": "model", "inputs": text(stream=True), "request_id": "4"}

    found: list[tuple[str, str]] = []
    async with client_of(server) as client:
        async for result, error in client.stream_infer(asked()):
            if error is None:
                found.append((result.get_response().id, result.as_numpy("text_output")[0].decode()))
            else:
                found.append(("error", error.message()))
                ended.set()
    assert found[:3] == [("1", "one"), ("1", " two"), ("error", "the engine fell over")]
    assert {words[:27] for _, words in found[3:]} == {
        "model `other` is not served",
        "`exclude_input_in_output` m",
        "three",
    }


async def test_a_stream_that_is_to_end_at_its_first_error(server: RunningServer) -> None:
    asked = [{"inputs": text(), "model_name": name} for name in ("other", "model")]
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stream(server, *asked, headers={"triton_grpc_error": "true"})
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert str(raised.value.details()).startswith("model `other` is not served")


async def test_cancellation(server: RunningServer) -> None:
    held = Script("one", hold=True)
    server.scripted.enqueue(held)
    async with client_of(server) as client:
        request = asyncio.create_task(client.infer("model", text()))
        await held.started.wait()
        request.cancel()
        await held.closed.wait()
    assert server.dispatcher.in_flight == 0


async def test_deadlines(server: RunningServer) -> None:
    """The client's own, which is gRPC's, and Triton's parameter in microseconds."""
    tries = (0.2, 2, 20)  # seconds
    scripts = [Script("one", hold=True) for _ in range(1 + len(tries))]
    server.scripted.enqueue(*scripts)
    for seconds in tries:  # in the first of which a busy machine may not have begun
        await deadline_exceeded(server, client_timeout=seconds)
        if server.scripted.history:
            break
    await scripts[0].closed.wait()
    message = await deadline_exceeded(server, timeout=50_000)
    assert message == "the answer was not complete within the request's `timeout` of 0.05 seconds"
    await until(lambda: server.dispatcher.in_flight == 0)


async def deadline_exceeded(server: RunningServer, **option: Any) -> str:
    """Return what a request is told for which the time was too short."""
    async with client_of(server) as client:
        with pytest.raises(InferenceServerException) as raised:
            await client.infer("model", text(), **option)
    assert raised.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    return str(raised.value.message())


@pytest.mark.parametrize(
    ("inputs", "options", "code", "message"),
    [
        (prompt(FAILING_TOKEN), {}, "INTERNAL", "the engine fell over"),
        (prompt(1, streaming=True), {}, "INVALID_ARGUMENT", "`streaming` must be false here: ModelStreamInfer is"),
        (prompt(1), {"model_version": "2"}, "NOT_FOUND", "model `model` has no version 2"),
        (prompt(1), {"outputs": [InferRequestedOutput("output")]}, "INVALID_ARGUMENT", "`outputs` names `output`"),
        (
            prompt(1),
            {"outputs": [InferRequestedOutput("output_ids", class_count=2)]},
            "INVALID_ARGUMENT",
            "`outputs.0.parameters.classification` is not a field of this request.",
        ),
        ([tensor("input_id", [[1]], "INT32")], {}, "INVALID_ARGUMENT", "`input_ids` is required"),
        (prompt(1), {"parameters": {"adapters": "french"}}, "NOT_FOUND", "there is no adapter `french`"),
    ],
)
async def test_errors(
    tensors: RunningServer, inputs: list[InferInput], options: dict[str, Any], code: str, message: str
) -> None:
    async with client_of(tensors) as client:
        with pytest.raises(InferenceServerException) as raised:
            await client.infer("model", inputs, **options)
    assert raised.value.status() == f"StatusCode.{code}"
    assert raised.value.message().startswith(message)


@pytest.mark.parametrize(("inputs", "options"), [(text(stream=True), {}), (text(), {"parameters": {"stream": True}})])
async def test_a_stream_is_asked_for_elsewhere(
    server: RunningServer, inputs: list[InferInput], options: dict[str, Any]
) -> None:
    async with client_of(server) as client:
        with pytest.raises(InferenceServerException) as raised:
            await client.infer("model", inputs, **options)
    message = "`stream` must be false here: ModelStreamInfer is the method of streams. Given: True"
    assert (raised.value.status(), raised.value.message()) == ("StatusCode.INVALID_ARGUMENT", message)


async def test_a_full_queue(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = SCRIPTED + "job_queue_size=1\noption.max_rolling_batch_size=1\n"
    server = await serve(model_dir({"serving.properties": properties}), grpc=True)
    scripts = [Script("one", hold=True) for _ in range(2)]
    server.scripted.enqueue(*scripts)
    async with client_of(server) as client:
        requests = [asyncio.create_task(client.infer("model", text())) for _ in scripts]
        for script in scripts:
            await script.started.wait()
        with pytest.raises(InferenceServerException, match="requests in its queue, which is full") as raised:
            await client.infer("model", text())
        assert raised.value.status() == "StatusCode.UNAVAILABLE"
        for request in requests:  # which reached the server in any order
            request.cancel()
        for script in scripts:
            await script.closed.wait()


async def test_what_is_not_served(server: RunningServer) -> None:
    async with client_of(server) as client:
        for ask, message in [
            (client.load_model("model"), "the models are those that the server was started with"),
            (client.unload_model("model"), "the models are those that the server was started with"),
            (client.get_system_shared_memory_status(), "shared memory is not served"),
            (client.register_system_shared_memory("a", "b", 1), "shared memory is not served"),
            (client.unregister_cuda_shared_memory(), "shared memory is not served"),
            (client.get_trace_settings(), "requests are not traced here"),
            (client.get_log_settings(), "logging is set when the server is started"),
        ]:
            with pytest.raises(InferenceServerException, match=message) as raised:
                await ask
            assert raised.value.status() == "StatusCode.UNIMPLEMENTED"


async def test_stop_by_abort(tensors: RunningServer) -> None:
    """Somebody else ends the request, by the id that the client gave it."""
    asked = {"inputs": prompt(7, 8, 9, streaming=True, hold=True), "request_id": "mine"}
    answer = asyncio.create_task(stream(tensors, asked))
    await backwards(tensors).holding.get()
    assert (await tensors.post("/v1/abort_request", {"request_id": "mine"})).status == 200
    *_, (_, error) = await answer
    assert error.message() == "the request was aborted"
