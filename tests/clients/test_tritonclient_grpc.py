"""Triton's gRPC client, unmodified, in both its forms: texts and tensors, whole and in streams."""

import asyncio
import queue
from collections.abc import AsyncIterator
from typing import Any

import numpy
import pytest
from tritonclient.grpc import InferenceServerClient, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from lmi_plugins.backends.scripted import Script
from tests.clients.triton_grpc import WORDS, client_of, is_final, prompt, stream, tensor, text, texts
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.triton.tensor_backend import PROPERTIES, BackwardsPlugin


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}), grpc=True)


@pytest.fixture
async def tensors(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[BackwardsPlugin()], grpc=True)


async def test_health(server: RunningServer) -> None:
    async with client_of(server) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert [await client.is_model_ready("model", version) for version in ("", "1", "2")] == [True, True, False]
        assert not await client.is_model_ready("other")
        server.model.ready = False
        assert await client.is_server_live()
        assert not await client.is_server_ready()
        assert not await client.is_model_ready("model")


async def test_metadata_is_that_of_http(tensors: RunningServer) -> None:
    async with client_of(tensors) as client:
        found = await client.get_server_metadata()
        http = (await tensors.get("/v2")).json()
        assert (found.name, found.version, list(found.extensions)) == tuple(http.values())
        metadata = await client.get_model_metadata("model", "1")
        http = (await tensors.get("/v2/models/model")).json()
        assert (metadata.name, list(metadata.versions), metadata.platform) == ("model", ["1"], "backwards")
        for key in ("inputs", "outputs"):
            described = [(each.name, each.datatype, list(each.shape)) for each in getattr(metadata, key)]
            assert described == [tuple(each.values()) for each in http[key]]
        config = (await client.get_model_config("model")).config
        assert config.model_transaction_policy.decoupled
        assert (config.name, config.backend, config.max_batch_size) == ("model", "backwards", 0)
        (given,) = [each for each in config.input if each.name == "input_ids"]
        assert (given.data_type, list(given.dims), given.optional) == (8, [1, -1], False)  # TYPE_INT32
        for ask in (client.get_model_metadata, client.get_model_config):
            with pytest.raises(InferenceServerException, match="model `other` is not served") as raised:
                await ask("other")
            assert raised.value.status() == "StatusCode.NOT_FOUND"


async def test_text(server: RunningServer) -> None:
    inputs = [*text(), tensor("max_tokens", [2], "INT32"), tensor("temperature", [0.5], "FP32")]
    async with client_of(server) as client:
        result = await client.infer("model", inputs, request_id="42", parameters={"top_k": 3, "min_p": "0.5"})
    assert result.as_numpy("text_output").tolist() == [b"client inputDeep Learning"]
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("42", "model", "1")
    asked: Any = server.scripted.history[-1].parameters
    assert (asked.temperature, asked.top_k, asked.min_p, asked.max_new_tokens) == (0.5, 3, 0.5, 2)


async def test_requested_outputs(server: RunningServer) -> None:
    outputs = [InferRequestedOutput("num_output_tokens"), InferRequestedOutput("output_log_probs")]
    async with client_of(server) as client:
        result = await client.infer("model", [*text(), tensor("max_tokens", [2], "INT32")], outputs=outputs)
    assert [each.name for each in result.get_response().outputs] == ["num_output_tokens", "output_log_probs"]
    assert result.as_numpy("output_log_probs").tolist() == [[-0.25, -0.25]]


async def test_unknown_parameters_are_listed(server: RunningServer) -> None:
    async with client_of(server) as client:
        result = await client.infer("model", text(), parameters={"mine": 5})
    assert result.get_response().parameters["X-Lmi-Ignored-Parameters"].string_param == "mine"


async def test_tensors(tensors: RunningServer) -> None:
    async with client_of(tensors) as client:
        result = await client.infer("model", [*prompt(7, 8, 9), tensor("note", [b"a", b""], "BYTES")])
    numpy.testing.assert_array_equal(result.as_numpy("output_ids"), numpy.array([[9, 8, 7]], "int32"), strict=True)
    assert result.as_numpy("note").tolist() == [b"a", b""]
    assert result.as_numpy("cum_log_probs").tolist() == [[-1.5]]


async def test_stream_of_text(server: RunningServer) -> None:
    pairs = await stream(server, {"inputs": text(stream=True, return_finish_reason=True), "request_id": "42"})
    assert texts(pairs) == WORDS
    assert [is_final(result) for result, _ in pairs] == [False] * 6 + [True]
    assert {result.get_response().id for result, _ in pairs} == {"42"}
    assert pairs[-1][0].as_numpy("finish_reason").tolist() == [b"stop"]


async def test_stream_of_one_response(server: RunningServer) -> None:
    """Without `stream`, as with Triton's vLLM backend."""
    ((result, error),) = await stream(server, {"inputs": text()})
    assert error is None
    assert is_final(result)
    assert result.as_numpy("text_output").tolist() == [("client input" + "".join(WORDS)).encode()]


async def test_stream_of_tensors(tensors: RunningServer) -> None:
    pairs = await stream(tensors, {"inputs": prompt(7, 8, 9, streaming=True)})
    assert [result.as_numpy("output_ids").tolist() for result, _ in pairs] == [[[9]], [[8]], [[7]]]
    assert not any(is_final(result) for result, _ in pairs)


async def stream_blocking(server: RunningServer, count: int, **asked: Any) -> list[Any]:
    """Return the first (result, error) pairs of a stream of the blocking client, which calls back from a thread."""

    def use() -> list[Any]:
        found: queue.Queue[Any] = queue.Queue()
        with InferenceServerClient(server.grpc_address) as client:
            client.start_stream(callback=lambda result, error: found.put((result, error)))
            client.async_stream_infer("model", **asked)
            pairs = [found.get(timeout=30) for _ in range(count)]
            client.stop_stream()
        return pairs

    return await asyncio.to_thread(use)


async def test_blocking_client(server: RunningServer) -> None:
    def use() -> Any:
        with InferenceServerClient(server.grpc_address) as client:
            return client.infer("model", text()).as_numpy("text_output").tolist()

    assert await asyncio.to_thread(use) == [("client input" + "".join(WORDS)).encode()]
    assert texts(await stream_blocking(server, len(WORDS), inputs=text(stream=True))) == WORDS


async def test_empty_last_response(tensors: RunningServer) -> None:
    """An empty final response comes where the last one with tensors was not known to be the last."""
    asked = {"inputs": prompt(7, 8, streaming=True), "enable_empty_final_response": True, "request_id": "42"}
    *_, (last, error) = await stream_blocking(tensors, 3, **asked)
    assert error is None
    assert (is_final(last), len(last.get_response().outputs), last.get_response().id) == (True, 0, "42")


async def test_no_empty_last_response_after_one_that_is_known(server: RunningServer) -> None:
    asked = {"inputs": text(stream=True), "enable_empty_final_response": True}
    pairs = await stream_blocking(server, len(WORDS), **asked)
    assert [is_final(result) for result, _ in pairs] == [False] * 6 + [True]
    assert texts(pairs) == WORDS


async def test_requests_of_one_stream_run_at_the_same_time(server: RunningServer) -> None:
    held = Script("one two", hold=True)
    server.scripted.enqueue(held, Script("three four"))
    ended = asyncio.Event()

    async def asked() -> AsyncIterator[dict[str, Any]]:
        yield {"model_name": "model", "inputs": text(stream=True), "request_id": "held"}
        await held.started.wait()
        yield {"model_name": "model", "inputs": text(stream=True), "request_id": "short"}
        await ended.wait()

    found: list[tuple[str, str]] = []
    async with client_of(server) as client:
        responses = client.stream_infer(asked())
        async for result, error in responses:
            assert error is None
            found.append((result.get_response().id, result.as_numpy("text_output")[0].decode()))
            if found[-1] == ("short", " four"):
                break
        assert found == [("held", "one"), ("held", " two"), ("short", "three"), ("short", " four")]
        responses.cancel()
        await held.closed.wait()  # that the client cancels the stream ends its requests
        ended.set()


async def test_index(server: RunningServer) -> None:
    async with client_of(server) as client:
        (model,) = (await client.get_model_repository_index()).models
        assert (model.name, model.version, model.state, model.reason) == ("model", "1", "READY", "")
        server.model.ready = False
        (model,) = (await client.get_model_repository_index()).models
        assert (model.state, model.reason) == ("LOADING", "model model is loading")


async def test_statistics(server: RunningServer) -> None:
    async with client_of(server) as client:
        (before,) = (await client.get_inference_statistics()).model_stats
        assert (before.name, before.version, before.inference_count, before.last_inference) == ("model", "1", 0, 0)
        await client.infer("model", text())
        await stream(server, {"inputs": text(stream=True)}, {"inputs": text()})
        server.scripted.enqueue(Script("one", error="the engine fell over"))
        with pytest.raises(InferenceServerException):
            await client.infer("model", text())
        (after,) = (await client.get_inference_statistics("model", "1")).model_stats
        with pytest.raises(InferenceServerException, match="model `other` is not served"):
            await client.get_inference_statistics("other")
    assert (after.inference_count, after.execution_count) == (3, 3)
    assert (after.inference_stats.success.count, after.inference_stats.fail.count) == (3, 1)
    assert after.inference_stats.success.ns > 0
    assert after.last_inference > 1_700_000_000_000
    (http,) = (await server.get("/v2/models/model/stats")).json()["model_stats"]
    assert (http["inference_count"], http["last_inference"]) == (3, after.last_inference)
