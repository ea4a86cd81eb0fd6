"""Triton's HTTP client, unmodified: tensors to a backend that takes them, and texts to any."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import numpy
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.triton.tensor_backend import FAILING_TOKEN, backwards, serve_backwards

TEXT = "Deep Learning is a really cool field."
COMPRESSIONS = [None, "gzip", "deflate"]

T = TypeVar("T")


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve_backwards(serve, model_dir)


async def ask(server: RunningServer, use: Callable[[InferenceServerClient], T]) -> T:
    """The client blocks, and belongs to one thread: it runs beside the server's event loop."""

    def run() -> T:
        with InferenceServerClient(f"127.0.0.1:{server.server.port}", concurrency=4, network_timeout=60) as client:
            return use(client)

    return await asyncio.to_thread(run)


def tensor(name: str, values: Any, datatype: str, binary: bool = True) -> InferInput:
    types = {"INT32": "int32", "UINT64": "uint64", "FP32": "float32", "FP16": "float16", "BOOL": "bool"}
    array = numpy.array(values, types.get(datatype, object))
    found = InferInput(name, array.shape, datatype)
    found.set_data_from_numpy(array, binary_data=binary)
    return found


def prompt(*ids: int, binary: bool = True) -> list[InferInput]:
    return [
        tensor("request_output_len", [[8]], "INT32", binary),
        tensor("input_ids", [ids], "INT32", binary),
    ]


async def test_health(server: RunningServer) -> None:
    def use(client: InferenceServerClient) -> list[bool]:
        of_model = [client.is_model_ready("model", version) for version in ("", "1", "2")]
        return [client.is_server_live(), client.is_server_ready(), *of_model, client.is_model_ready("other")]

    assert await ask(server, use) == [True, True, True, True, False, False]
    server.model.ready = False
    assert await ask(server, use) == [True, False, False, False, False, False]


async def test_metadata(server: RunningServer) -> None:
    assert (await ask(server, lambda client: client.get_server_metadata()))["name"] == "lmi-handlers"
    metadata = await ask(server, lambda client: client.get_model_metadata("model", "1"))
    assert metadata["inputs"][1] == {"name": "input_ids", "datatype": "INT32", "shape": [1, -1]}
    configuration = await ask(server, lambda client: client.get_model_config("model"))
    assert configuration["model_transaction_policy"] == {"decoupled": True}
    with pytest.raises(InferenceServerException, match="model `other` is not served") as raised:
        await ask(server, lambda client: client.get_model_metadata("other"))
    assert raised.value.status() == "404"


async def test_index(server: RunningServer) -> None:
    index = await ask(server, lambda client: client.get_model_repository_index())
    assert index == [{"name": "model", "version": "1", "state": "READY", "reason": ""}]


async def test_statistics(server: RunningServer) -> None:
    await ask(server, lambda client: client.infer("model", prompt(7, 8)))
    await refusal(server, ids=(FAILING_TOKEN,))
    for name, version in (("model", ""), ("model", "1"), ("", "")):
        found = await ask(server, lambda client: client.get_inference_statistics(name, version))  # noqa: B023
        (model,) = found["model_stats"]
        assert (model["name"], model["version"], model["inference_count"]) == ("model", "1", 1)
        assert [model["inference_stats"][kind]["count"] for kind in ("success", "fail")] == [1, 1]
        assert model["inference_stats"]["success"]["ns"] > 0
    with pytest.raises(InferenceServerException, match="model `other` is not served"):
        await ask(server, lambda client: client.get_inference_statistics("other"))


@pytest.mark.parametrize("binary", [True, False])
async def test_infer(server: RunningServer, binary: bool) -> None:
    result = await ask(server, lambda client: client.infer("model", prompt(7, 8, 9, binary=binary), request_id="42"))
    numpy.testing.assert_array_equal(result.as_numpy("output_ids"), numpy.array([[9, 8, 7]], "int32"), strict=True)
    numpy.testing.assert_array_equal(result.as_numpy("cum_log_probs"), numpy.array([[-1.5]], "float32"), strict=True)
    assert {name: result.get_response()[name] for name in ("id", "model_name", "model_version")} == {
        "id": "42",
        "model_name": "model",
        "model_version": "1",
    }
    assert result.as_numpy("note") is None


@pytest.mark.parametrize("binary", [True, False])
async def test_requested_outputs(server: RunningServer, binary: bool) -> None:
    outputs = [InferRequestedOutput("note", binary), InferRequestedOutput("cum_log_probs", not binary)]
    inputs = [*prompt(1), tensor("note", ["grün".encode(), b""], "BYTES", binary)]
    result = await ask(server, lambda client: client.infer("model", inputs, "1", outputs))
    assert [each["name"] for each in result.get_response()["outputs"]] == ["note", "cum_log_probs"]
    values = [value if isinstance(value, bytes) else value.encode() for value in result.as_numpy("note")]
    assert values == ["grün".encode(), b""]
    assert result.as_numpy("cum_log_probs").tolist() == [[-0.5]]


@pytest.mark.parametrize("of_request", COMPRESSIONS)
@pytest.mark.parametrize("of_answer", COMPRESSIONS)
async def test_compression(server: RunningServer, of_request: str | None, of_answer: str | None) -> None:
    def use(client: InferenceServerClient) -> Any:
        return client.infer(
            "model",
            prompt(7, 8),
            request_compression_algorithm=of_request,
            response_compression_algorithm=of_answer,
        )

    assert (await ask(server, use)).as_numpy("output_ids").tolist() == [[8, 7]]


async def test_several_at_once(server: RunningServer) -> None:
    def use(client: InferenceServerClient) -> list[Any]:
        pending = [client.async_infer("model", prompt(place, 5)) for place in range(4)]
        return [request.get_result(timeout=60).as_numpy("output_ids").tolist() for request in pending]

    assert await ask(server, use) == [[[5, place]] for place in range(4)]


@pytest.mark.parametrize(
    ("name", "values", "datatype"),
    [
        ("random_seed", [2**64 - 1], "UINT64"),
        ("draft_logits", [[0.5, -2], [1, 3]], "FP32"),
        ("prompt_embedding_table", [[0.5, -2]], "FP16"),
        ("streaming", [False], "BOOL"),
        ("bad_words_list", [[[5, 9], [1, 2]]], "INT32"),
        ("note", [b"a", b"bc"], "BYTES"),
    ],
)
async def test_types(server: RunningServer, name: str, values: Any, datatype: str) -> None:
    await ask(server, lambda client: client.infer("model", [*prompt(1), tensor(name, values, datatype)]))
    assert backwards(server).inferred[-1][1][name].array().tolist() == values


async def refusal(server: RunningServer, *further: InferInput, ids: tuple[int, ...] = (1,), **options: Any) -> str:
    with pytest.raises(InferenceServerException) as raised:
        await ask(server, lambda client: client.infer("model", [*prompt(*ids), *further], **options))
    return f"{raised.value.status()}: {raised.value.message()}"


async def test_errors(server: RunningServer) -> None:
    streaming = await refusal(server, tensor("streaming", [True], "BOOL"))
    assert streaming == "400: `streaming` must be false on this route: use generate_stream for streams. Given: True"
    assert await refusal(server, ids=(FAILING_TOKEN,)) == "500: the engine fell over"
    compressed = await refusal(server, ids=(FAILING_TOKEN,), response_compression_algorithm="gzip")
    assert compressed == "500: the engine fell over"
    timeout = await refusal(server, tensor("hold", [True], "BOOL"), timeout=50_000)
    assert timeout == "504: the answer was not complete within the request's `timeout` of 0.05 seconds"
    classification = await refusal(server, outputs=[InferRequestedOutput("output_ids", class_count=2)])
    assert classification.startswith("400: `outputs.0.parameters.classification` is not a field of this request.")


async def test_texts_on_any_backend(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    inputs = [
        tensor("text_input", [["client input"]], "BYTES"),
        tensor("max_tokens", [[2]], "INT32"),
        tensor("stop_words", [[""]], "BYTES"),
        tensor("temperature", [[0.5]], "FP32"),
        tensor("return_log_probs", [[True]], "BOOL"),
        tensor("exclude_input_in_output", [[True]], "BOOL"),
    ]
    result = await ask(server, lambda client: client.infer("model", inputs, parameters={"top_k": 3}))
    assert result.as_numpy("text_output").tolist() == [b"Deep Learning"]
    assert result.as_numpy("output_log_probs").tolist() == [[-0.25, -0.25]]
    found = server.scripted.history[-1]
    assert (found.prompt, found.parameters.temperature, found.parameters.top_k) == ("client input", 0.5, 3)
