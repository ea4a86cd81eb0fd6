"""KServe's inference protocol (v2) with tensors, as its documentation shows it."""

import asyncio
import gzip
import zlib
from typing import Any

import numpy
import orjson
import pytest

from lmi_core.generation.tensors import Tensor
from tests.conftest import Answer, ModelDirectory, RunningServer, Serve
from tests.handlers.triton.tensor_backend import FAILING_TOKEN, PROPERTIES, BackwardsPlugin, backwards, serve_backwards

INFER = "/v2/models/model/infer"
HEAD = {"model_name": "model", "model_version": "1"}
LENGTH = {"name": "request_output_len", "shape": [1, 1], "datatype": "INT32", "data": [8]}
IDS = {"name": "input_ids", "shape": [1, 3], "datatype": "INT32", "data": [7, 8, 9]}
OUTPUT_IDS = {"name": "output_ids", "datatype": "INT32", "shape": [1, 3], "data": [9, 8, 7]}
CUM_LOG_PROBS = {"name": "cum_log_probs", "datatype": "FP32", "shape": [1, 1], "data": [-1.5]}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve_backwards(serve, model_dir)


def tensor(name: str, datatype: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def flag(name: str, value: bool = True) -> dict[str, Any]:
    return tensor(name, "BOOL", [1], [value])


async def infer(server: RunningServer, *further: dict[str, Any], **members: Any) -> Answer:
    return await server.post(INFER, {"inputs": [LENGTH, IDS, *further], **members})


def binary(*tensors: tuple[dict[str, Any], bytes], **members: Any) -> tuple[bytes, dict[str, str]]:
    """A body with these tensors' data behind the object, and its headers."""
    inputs = [each | {"parameters": {"binary_data_size": len(data)}} for each, data in tensors]
    header = orjson.dumps({"inputs": inputs, **members})
    return header + b"".join(data for _, data in tensors), {"Inference-Header-Content-Length": str(len(header))}


def undata(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != "data"}


BINARY_INPUTS = [
    (undata(LENGTH), numpy.array([2], "<i4").tobytes()),
    (undata(IDS), numpy.array([7, 8, 9], "<i4").tobytes()),
]


async def test_json(server: RunningServer) -> None:
    answer = await infer(server, id="42", model_name="model")
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.json() == {"id": "42", **HEAD, "outputs": [OUTPUT_IDS, CUM_LOG_PROBS]}
    assert "Inference-Header-Content-Length" not in answer.headers


async def test_version(server: RunningServer) -> None:
    path = "/v2/models/model/versions/{}/infer"
    assert (await server.post(path.format(1), {"inputs": [LENGTH, IDS]})).json()["model_version"] == "1"
    answer = await server.post(path.format(2), {"inputs": [LENGTH, IDS]})
    assert (answer.status, answer.json()) == (404, {"error": "model `model` has no version 2"})


async def test_nested_data(server: RunningServer) -> None:
    answer = await server.post(INFER, {"inputs": [LENGTH | {"data": [[8]]}, IDS | {"data": [[7, 8, 9]]}]})
    assert answer.json()["outputs"][0] == OUTPUT_IDS


async def test_binary_inputs(server: RunningServer) -> None:
    body, headers = binary(*BINARY_INPUTS)
    answer = await server.post(INFER, data=body, headers=headers)
    assert answer.json()["outputs"][0]["data"] == [9, 8]


async def test_binary_beside_json(server: RunningServer) -> None:
    header = orjson.dumps({"inputs": [LENGTH, undata(IDS) | {"parameters": {"binary_data_size": 12}}]})
    headers = {"Inference-Header-Content-Length": str(len(header))}
    answer = await server.post(INFER, data=header + BINARY_INPUTS[1][1], headers=headers)
    assert answer.json()["outputs"][0] == OUTPUT_IDS


@pytest.mark.parametrize(
    ("by_default", "of_ids", "of_log_probs", "are_binary"),
    [
        (None, True, None, {"output_ids"}),
        (None, False, True, {"cum_log_probs"}),
        (True, None, None, {"output_ids", "cum_log_probs"}),
        (True, False, None, {"cum_log_probs"}),
        (False, None, None, set()),
    ],
)
async def test_binary_outputs(
    server: RunningServer, by_default: bool | None, of_ids: bool | None, of_log_probs: bool | None, are_binary: set[str]
) -> None:
    outputs = [
        {"name": name, "parameters": {} if binary is None else {"binary_data": binary}}
        for name, binary in {"output_ids": of_ids, "cum_log_probs": of_log_probs}.items()
    ]
    parameters = {} if by_default is None else {"binary_data_output": by_default}
    answer = await infer(server, outputs=outputs, parameters=parameters)
    length = int(answer.headers.get("Inference-Header-Content-Length", len(answer.body)))
    described, data = orjson.loads(answer.body[:length])["outputs"], answer.body[length:]
    assert {each["name"] for each in described if "data" not in each} == are_binary
    expected = {"output_ids": numpy.array([9, 8, 7], "<i4"), "cum_log_probs": numpy.array([-1.5], "<f4")}
    assert data == b"".join(expected[each["name"]].tobytes() for each in described if "data" not in each)
    sizes = [each["parameters"]["binary_data_size"] for each in described if "parameters" in each]
    assert sum(sizes) == len(data)
    assert answer.content_type == ("application/octet-stream" if are_binary else "application/json")


async def test_only_the_outputs_that_are_asked_for(server: RunningServer) -> None:
    answer = await infer(server, outputs=[{"name": "cum_log_probs"}])
    assert answer.json()["outputs"] == [CUM_LOG_PROBS]
    absent = await infer(server, outputs=[{"name": "note"}])
    assert absent.json()["outputs"] == []
    unknown = await infer(server, outputs=[{"name": "output_id"}])
    message = (
        "`outputs` names `output_id`, which is not an output of this request. Did you mean `output_ids`? Known: "
        "output_ids, cum_log_probs, note"
    )
    assert (unknown.status, unknown.json()) == (400, {"error": message})


async def test_texts(server: RunningServer) -> None:
    answer = await infer(server, tensor("note", "BYTES", [2], ["grün", ""]))
    assert answer.json()["outputs"][2] == {"name": "note", "datatype": "BYTES", "shape": [2], "data": ["grün", ""]}


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "data", "array"),
    [
        ("random_seed", "UINT64", [1], [2**64 - 1], numpy.array([2**64 - 1], "uint64")),
        ("bad_words_list", "INT32", [1, 2, 2], [5, 9.0, 1, 2], numpy.array([[[5, 9], [1, 2]]], "int32")),
        ("draft_logits", "FP32", [2, 2], [1, 2.5, -3, 0], numpy.array([[1, 2.5], [-3, 0]], "float32")),
        ("prompt_embedding_table", "FP16", [1, 2], [0.5, -2], numpy.array([[0.5, -2]], "float16")),
        ("streaming", "BOOL", [1], [False], numpy.array([False])),
        # of 1 + 1/256, halfway between two, the even one; of the next float32 above it, the next
        ("lora_weights", "BF16", [3], [1.00390625, 1.0039064, -2], numpy.array([1, 1.0078125, -2], "float32")),
    ],
)
async def test_types(
    server: RunningServer, name: str, datatype: str, shape: list[int], data: list[Any], array: numpy.ndarray[Any, Any]
) -> None:
    assert (await infer(server, tensor(name, datatype, shape, data))).status == 200
    found: Tensor = backwards(server).inferred[-1][1][name]
    assert found.dtype == datatype
    numpy.testing.assert_array_equal(found.array(), array, strict=True)


async def test_each_request_has_an_id_of_its_own(server: RunningServer) -> None:
    await asyncio.gather(*(infer(server, id="1") for _ in range(3)))
    assert len({request_id for request_id, _ in backwards(server).inferred}) == 3


@pytest.mark.parametrize("encode", [gzip.compress, zlib.compress])
async def test_compressed_request(server: RunningServer, encode: Any) -> None:
    body, headers = binary(*BINARY_INPUTS)
    coding = {"Content-Encoding": "gzip" if encode is gzip.compress else "deflate"}
    answer = await server.post(INFER, data=encode(body), headers=headers | coding)
    assert answer.json()["outputs"][0]["data"] == [9, 8]


@pytest.mark.parametrize(
    ("coding", "decode"), [("gzip", gzip.decompress), ("deflate", zlib.decompress), ("identity", bytes)]
)
async def test_compressed_answer(server: RunningServer, coding: str, decode: Any) -> None:
    request = server.client.post(
        INFER, json={"inputs": [LENGTH, IDS]}, headers={"Accept-Encoding": coding}, auto_decompress=False
    )
    async with request as response:
        assert response.headers.get("Content-Encoding", "identity") == coding
        assert orjson.loads(decode(await response.read()))["outputs"][0] == OUTPUT_IDS


async def test_errors_are_not_compressed(server: RunningServer) -> None:
    request = server.client.post(INFER, json={}, headers={"Accept-Encoding": "gzip"}, auto_decompress=False)
    async with request as response:
        assert orjson.loads(await response.read()) == {"error": "`inputs` is required"}


async def test_no_streams(server: RunningServer) -> None:
    answer = await infer(server, flag("streaming"))
    message = "`streaming` must be false on this route: use generate_stream for streams. Given: True"
    assert (answer.status, answer.json()) == (400, {"error": message})


@pytest.mark.parametrize(("datatype", "data"), [("INT32", [1]), ("BOOL", [True, True])])
async def test_what_is_no_flag_is_not_taken_for_one(server: RunningServer, datatype: str, data: list[Any]) -> None:
    answer = await infer(server, {"name": "streaming", "datatype": datatype, "shape": [len(data)], "data": data})
    assert "must be false here" not in answer.body.decode()


async def test_adapters(serve: Serve, model_dir: ModelDirectory) -> None:
    files = {"serving.properties": PROPERTIES, "adapters/french/model.py": ""}
    server = await serve(model_dir(files), plugins=[BackwardsPlugin()])
    named = {"X-Amzn-SageMaker-Adapter-Identifier": "french"}
    answer = await server.post(INFER, {"inputs": [LENGTH, IDS]}, headers=named)
    assert answer.status == 400
    assert answer.json() == {"error": "a request with tensors cannot name one of the model's `adapters`"}


INVALID: list[tuple[dict[str, Any], str]] = [
    *(
        ({"inputs": [IDS | {"shape": [1] * count}]}, "`inputs.0.shape` must have at most 32 items")
        for count in (33, 65, 40_000)
    ),
    ({"inputs": [IDS | {"shape": [2**62] * 32}]}, "`input_ids` of shape ["),
    (
        {"inputs": [IDS | {"shape": [0, 2**63 - 1]}]},
        "`input_ids` of shape [0, 9223372036854775807] must have 0 elements",
    ),
    ({"inputs": [IDS | {"shape": [[1, 3]]}]}, "`inputs.0.shape.0` must be "),
    ({}, "`inputs` is required"),
    ({"inputs": []}, "`inputs` must have at least 1 item. Given: []"),
    ({"inputs": [LENGTH], "id": 5}, "`id` must be a valid string. Given: 5"),
    ({"inputs": [LENGTH], "model_name": "other"}, "`model_name` must be model, as in the path. Given: 'other'"),
    ({"inputs": [LENGTH]}, "`input_ids` is required"),
    ({"inputs": [LENGTH, LENGTH]}, "`inputs` must contain each tensor once. Given twice: `request_output_len`"),
    ({"inputs": [IDS | {"shape": [1, 4]}]}, "`input_ids` of shape [1, 4] must have 4 elements. Given: 3"),
    (
        {"inputs": [IDS | {"data": [[1], [2], [3]]}]},
        "`input_ids` must have data of shape [1, 3], or a flat list. Given: [3, 1]",
    ),
    (
        {"inputs": [IDS | {"data": [[1, 2], [3]]}]},
        "`input_ids` must have nested lists of equal length. Given: [[1, 2], [3]]",
    ),
    ({"inputs": [IDS | {"data": [1, [2], 3]}]}, "`input_ids` must contain values of type INT32. Given: [2]"),
    ({"inputs": [IDS | {"data": [1, 2.5, 3]}]}, "`input_ids` must contain values of type INT32. Given: 2.5"),
    ({"inputs": [IDS | {"data": [1, True, 3]}]}, "`input_ids` must contain values of type INT32. Given: True"),
    (
        {"inputs": [IDS | {"data": [1, 2**31, 3]}]},
        "`input_ids` contains a value that does not fit INT32. Given: [1, 2147483648, 3]",
    ),
    (
        {"inputs": [tensor("draft_logits", "FP32", [1, 1], [1e39])]},
        "`draft_logits` contains a value that does not fit FP32. Given: [1e+39]",
    ),
    ({"inputs": [tensor("note", "BYTES", [1], [5])]}, "`note` must contain values of type BYTES. Given: 5"),
    ({"inputs": [flag("streaming") | {"data": [1]}]}, "`streaming` must contain values of type BOOL. Given: 1"),
    ({"inputs": [IDS | {"datatype": "INT33"}]}, "`inputs.0.datatype` must be 'BOOL', 'UINT8'"),
    ({"inputs": [IDS | {"shape": [1, -3]}]}, "`inputs.0.shape.1` must be greater than or equal to 0. Given: -3"),
    ({"inputs": [undata(IDS)]}, "`input_ids` must have either `data` or `parameters.binary_data_size`"),
    (
        {"inputs": [IDS | {"parameters": {"binary_data_size": 12}}]},
        "`input_ids` must have either `data` or `parameters.binary_data_size`",
    ),
    (
        {"inputs": [undata(IDS) | {"parameters": {"shared_memory_region": "a"}}]},
        "`inputs.0.parameters.shared_memory_region` is not a field of this request.",
    ),
    (
        {"inputs": [LENGTH, IDS], "outputs": [{"name": "output_ids", "parameters": {"classification": 2}}]},
        "`outputs.0.parameters.classification` is not a field of this request.",
    ),
    (
        {"inputs": [LENGTH, IDS], "parameters": {"timeout": -1}},
        "`timeout` must be a number of microseconds, or 0 for none. Given: -1",
    ),
    (
        {"inputs": [LENGTH, IDS], "parameters": {"top_k": 2}},
        "`parameters.top_k` is not a parameter of this model, whose",
    ),
    (
        {"inputs": [LENGTH, IDS], "parameters": {"binary_data_output": 1}},
        "`binary_data_output` must be a valid boolean. Given: 1",
    ),
]


async def test_sequences_and_priorities_are_ignored(server: RunningServer) -> None:
    answer = await infer(server, parameters={"sequence_id": 7, "sequence_start": True, "priority": 1})
    assert (answer.status, answer.json()["outputs"][0]) == (200, OUTPUT_IDS)
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "sequence_id, sequence_start, priority"
    neutral = await infer(server, parameters={"sequence_id": 0, "sequence_start": False, "priority": 0})
    assert "X-Lmi-Ignored-Parameters" not in neutral.headers


@pytest.mark.parametrize(("body", "message"), INVALID)
async def test_invalid_request(server: RunningServer, body: dict[str, Any], message: str) -> None:
    answer = await server.post(INFER, body)
    assert (answer.status, answer.content_type) == (400, "application/json")
    assert answer.json().keys() == {"error"}
    assert answer.json()["error"].startswith(message)


@pytest.mark.parametrize(
    ("length", "message"),
    [
        ("0", "Inference-Header-Content-Length must be from 1 to the body's length, "),
        ("x", "Inference-Header-Content-Length must be from 1 to the body's length, "),
        ("9999", "Inference-Header-Content-Length must be from 1 to the body's length, "),
        ("9" * 5000, "Inference-Header-Content-Length must be from 1 to the body's length, "),
        ("10", "the body is not valid JSON: "),
    ],
)
async def test_wrong_header_length(server: RunningServer, length: str, message: str) -> None:
    body, _ = binary(*BINARY_INPUTS)
    answer = await server.post(INFER, data=body, headers={"Inference-Header-Content-Length": length})
    assert answer.status == 400
    assert answer.json()["error"].startswith(message)


async def test_wrong_binary_sizes(server: RunningServer) -> None:
    body, headers = binary(*BINARY_INPUTS)
    longer = await server.post(INFER, data=body + b"1", headers=headers)
    assert longer.json() == {"error": "the tensors' binary data must be 16 bytes in all. Given: 17"}
    body, headers = binary((undata(IDS), b"12345678"))
    shorter = await server.post(INFER, data=body, headers=headers)
    assert shorter.json() == {"error": "`input_ids`: INT32 of shape [1, 3] must have 12 bytes. Given: 8"}
    body, headers = binary((undata(tensor("note", "BYTES", [1], [])), b"\x09\0\0\0abc"))
    cut = await server.post(INFER, data=body, headers=headers)
    assert cut.json() == {"error": "`note`: the data of a BYTES tensor ends within an element"}


async def test_lists_nested_beyond_reason(server: RunningServer) -> None:
    data: list[Any] = [7]
    for _ in range(500):
        data = [data]
    answer = await server.post(INFER, {"inputs": [IDS | {"shape": [1, 1], "data": data}]})
    assert answer.status == 400
    assert answer.json()["error"].startswith(
        "`input_ids` must have data of shape [1, 1], or a flat list. Given: [1, 1,"
    )


async def test_unknown_model(server: RunningServer) -> None:
    answer = await server.post("/v2/models/yourmodel/infer", {"inputs": [LENGTH, IDS]})
    assert answer.status == 404


async def test_failure(server: RunningServer) -> None:
    answer = await server.post(INFER, {"inputs": [LENGTH, IDS | {"data": [1, FAILING_TOKEN, 2]}]})
    assert (answer.status, answer.json()) == (500, {"error": "the engine fell over"})


async def test_timeout_of_the_request(server: RunningServer) -> None:
    answer = await infer(server, flag("hold"), parameters={"timeout": 50_000})
    assert answer.status == 504
    assert answer.json() == {"error": "the answer was not complete within the request's `timeout` of 0.05 seconds"}
    assert backwards(server).closed.is_set()


async def test_predict_timeout(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_backwards(serve, model_dir, "option.predict_timeout=1\n")
    answer = await infer(server, flag("hold"))
    assert answer.status == 504
    assert backwards(server).closed.is_set()


async def test_abort(server: RunningServer) -> None:
    body = {"inputs": [LENGTH, IDS, flag("hold")]}
    request = asyncio.create_task(server.post(INFER, body, headers={"x-request-id": "mine"}))
    await backwards(server).holding.get()
    assert (await server.post("/v1/abort_request", {"request_id": "mine"})).status == 200
    answer = await request
    assert (answer.status, answer.json()) == (499, {"error": "the request was aborted"})
    assert backwards(server).closed.is_set()


async def test_a_client_that_leaves(server: RunningServer) -> None:
    request = asyncio.create_task(infer(server, flag("hold")))
    await backwards(server).holding.get()
    request.cancel()
    await backwards(server).closed.wait()


async def test_full_queue(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_backwards(serve, model_dir, "job_queue_size=1\noption.max_rolling_batch_size=1\n")
    requests = [asyncio.create_task(infer(server, flag("hold"))) for _ in range(2)]
    await backwards(server).holding.get()
    await backwards(server).holding.get()
    refused = await infer(server)
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    for request in requests:
        request.cancel()


async def test_dynamic_batch(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = "option.rolling_batch=disable\nbatch_size=1\nmax_batch_delay=0\n"
    server = await serve(model_dir({"serving.properties": properties}), plugins=[BackwardsPlugin()])
    body = {"inputs": [LENGTH, IDS, flag("hold")]}
    first = asyncio.create_task(server.post(INFER, body, headers={"x-request-id": "first"}))
    await backwards(server).holding.get()
    second = asyncio.create_task(infer(server))
    async with asyncio.timeout(60):
        while server.dispatcher.in_flight < 2:
            await asyncio.sleep(0.01)
    assert len(backwards(server).inferred) == 1
    await server.post("/v1/abort_request", {"request_id": "first"})
    assert ((await first).status, (await second).status) == (499, 200)
