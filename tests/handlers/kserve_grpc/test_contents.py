"""Input tensors as typed values and as bytes."""

from typing import Any

import pytest

from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.handlers.kserve_grpc.asking import infer_request, refusal, stub_of
from tests.handlers.triton.tensor_backend import PROPERTIES, BackwardsPlugin, backwards

LENGTH = ("request_output_len", "INT32", [1, 1], {"int_contents": [8]})
IDS = ("input_ids", "INT32", [1, 2], {"int_contents": [7, 8]})


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES}), plugins=[BackwardsPlugin()], grpc=True)


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "contents", "expected"),
    [
        ("hold", "BOOL", [1], {"bool_contents": [False]}, [False]),
        ("random_seed", "UINT64", [1], {"uint64_contents": [2**64 - 1]}, [2**64 - 1]),
        ("draft_logits", "FP32", [2, 1], {"fp32_contents": [0.5, -2]}, [[0.5], [-2]]),
        ("draft_logits", "FP64", [1, 1], {"fp64_contents": [0.1]}, [[0.1]]),
        ("note", "BYTES", [2], {"bytes_contents": [b"\xff", b""]}, [b"\xff", b""]),
        ("note", "INT8", [1], {"int_contents": [-128]}, [-128]),
        ("note", "INT64", [1], {"int64_contents": [-(2**63)]}, [-(2**63)]),
        ("note", "UINT16", [1], {"uint_contents": [65535]}, [65535]),
    ],
)
async def test_typed(
    server: RunningServer, name: str, datatype: str, shape: list[int], contents: dict[str, Any], expected: Any
) -> None:
    async with stub_of(server) as stub:
        await stub.ModelInfer(infer_request(LENGTH, IDS, (name, datatype, shape, contents)))
    (_, inputs) = backwards(server).inferred[-1]
    assert inputs["input_ids"].array().tolist() == [[7, 8]]
    assert (inputs[name].dtype, inputs[name].array().tolist()) == (datatype, expected)


async def test_bytes(server: RunningServer) -> None:
    """FP16 and BF16 have no typed values."""
    tensors: list[Any] = [(*LENGTH[:3], {}), (*IDS[:3], {}), ("lora_weights", "BF16", [1], {})]
    data = [b"\x08\0\0\0", b"\x07\0\0\0\x08\0\0\0", b"\x80\x3f"]
    async with stub_of(server) as stub:
        response = await stub.ModelInfer(infer_request(*tensors, raw_input_contents=data))
    assert response.raw_output_contents[0] == b"\x08\0\0\0\x07\0\0\0"
    assert backwards(server).inferred[-1][1]["lora_weights"].array().tolist() == [1]


@pytest.mark.parametrize(
    ("inputs", "raw", "message"),
    [
        ([(*LENGTH[:3], {})], [], "`request_output_len`: INT32 of shape [1, 1] must have 4 bytes. Given: 0"),
        (
            [("input_ids", "INT32", [1], {"fp32_contents": [1]})],
            [],
            "`input_ids` of type INT32 cannot have `fp32_contents`: its values are `int_contents`",
        ),
        (
            [("a", "FP16", [1], {"fp32_contents": [1]})],
            [],
            "`a` of type FP16 cannot have `fp32_contents`: give it as `raw_input_contents`",
        ),
        (
            [("a", "INT8", [1], {"int_contents": [128]})],
            [],
            "`a` holds a value that does not fit INT8. Given: [128]",
        ),
        ([IDS], [b"1234"], "`input_ids` cannot have `contents` if the request has `raw_input_contents`"),
        ([(*IDS[:3], {})], [b"", b""], "`raw_input_contents` must have the data of each of the 1 inputs. Given: 2"),
        ([(*IDS[:3], {})], [b"1234"], "`input_ids`: INT32 of shape [1, 2] must have 8 bytes. Given: 4"),
        ([("a", "INT", [1], {})], [], "`inputs.0.datatype` must be "),
        ([("a", "INT32", [-1], {})], [], "`inputs.0.shape.0` must be "),
        ([("a", "INT32", [1] * 65, {"int_contents": [1]})], [], "`inputs.0.shape` must have at most 32 items"),
        ([("a", "INT32", [1] * 40_000, {})], [b"1234"], "`inputs.0.shape` must have at most 32 items"),
        ([("a", "INT32", [2**62] * 32, {})], [b"1234"], "`a`: INT32 of shape [4611686018427387904, "),
        ([("a", "BYTES", [2**62] * 32, {"bytes_contents": [b"a"]})], [], "`a`: BYTES of shape [4611686018427387904, "),
        ([], [], "`inputs` must have at least 1 item"),
    ],
)
async def test_errors(server: RunningServer, inputs: list[Any], raw: list[bytes], message: str) -> None:
    code, found = await refusal(server, infer_request(*inputs, raw_input_contents=raw))
    assert (code, found[: len(message)]) == ("INVALID_ARGUMENT", message)
