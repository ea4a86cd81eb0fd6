"""What a request names besides its tensors: the model, adapters, an id, its size."""

import asyncio
from typing import Any

import grpc
import orjson
import pytest
import pytest_asyncio
from tritonclient.grpc import service_pb2

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.kserve_grpc.asking import infer_request, refusal, stub_of

FORMATTER = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(response_data: dict) -> dict:
    return {"by": "NAME", **response_data}
"""
TEXT = ("text_input", "BYTES", [1], {"bytes_contents": [b"hi"]})
FRENCH: dict[str, Any] = {"lora_name": {"string_param": "french"}}


@pytest_asyncio.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    adapters = {f"adapters/{name}/model.py": FORMATTER.replace("NAME", name) for name in ("french", "german")}
    properties = SCRIPTED + "max_request_size=1000\n"
    return await serve(model_dir({"serving.properties": properties, **adapters}), grpc=True)


def parameters(**values: Any) -> dict[str, Any]:
    return {name: service_pb2.InferParameter(**value) for name, value in values.items()}


def sampling(**values: object) -> tuple[str, str, list[int], dict[str, Any]]:
    return ("sampling_parameters", "BYTES", [1], {"bytes_contents": [orjson.dumps(values)]})


async def output(server: RunningServer, request: Any, **options: Any) -> bytes:
    async with stub_of(server) as stub:
        response = await stub.ModelInfer(request, **options)
    (tensor,) = response.outputs
    assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("text_output", "BYTES", [1])
    return bytes(response.raw_output_contents[0][4:])


@pytest.mark.parametrize(
    ("request_", "metadata"),
    [
        (infer_request(TEXT, parameters=parameters(**FRENCH)), ()),
        (infer_request(TEXT, parameters=parameters(adapters={"string_param": "french"})), ()),
        (infer_request(TEXT, sampling(lora_name="french", max_tokens="2")), ()),
        (infer_request(TEXT), [("x-amzn-sagemaker-adapter-identifier", "french")]),
    ],
)
async def test_adapters(server: RunningServer, request_: Any, metadata: Any) -> None:
    """The adapter's own formatter writes `text_output`."""
    answer = orjson.loads(await output(server, request_, metadata=metadata))
    assert (answer["by"], answer["text_output"][:6]) == ("french", "hiDeep")


async def test_an_adapter_in_a_stream(server: RunningServer) -> None:
    stream = ("stream", "BOOL", [1], {"bool_contents": [True]})
    request = infer_request(TEXT, stream, parameters=parameters(max_tokens={"int64_param": 2}, **FRENCH))
    async with stub_of(server) as stub:
        responses = [each.infer_response async for each in stub.ModelStreamInfer(iter([request]))]
    lines = [orjson.loads(response.raw_output_contents[0][4:]) for response in responses]
    assert lines == [{"by": "french", "text_output": text} for text in ("Deep", " Learning")]
    assert [response.parameters["triton_final_response"].bool_param for response in responses] == [False, True]


async def test_different_adapters(server: RunningServer) -> None:
    request = infer_request(TEXT, sampling(lora_name="german"), parameters=parameters(**FRENCH))
    code, message = await refusal(server, request)
    assert code == "INVALID_ARGUMENT"
    assert "name different adapters" in message


async def test_parameters_of_every_type(server: RunningServer) -> None:
    given = parameters(
        max_tokens={"int64_param": 2},
        temperature={"double_param": 0.5},
        seed={"uint64_param": 7},
        exclude_input_in_output={"bool_param": True},
        top_p={"string_param": "0.5"},
        triton_of_tomorrow={"bool_param": True},
        unset={},
    )
    assert await output(server, infer_request(TEXT, parameters=given)) == b"Deep Learning"
    found: Any = server.scripted.history[-1].parameters
    assert (found.temperature, found.seed, found.top_p) == (0.5, 7, 0.5)


async def test_size(server: RunningServer) -> None:
    """A message may be as long as the bound; a longer one is refused, and gRPC itself refuses a very long one."""
    assert await output(server, infer_request(("text_input", "BYTES", [1], {"bytes_contents": [b"h" * 900]})))
    too_long = infer_request(("text_input", "BYTES", [1], {"bytes_contents": [b"h" * 1000]}))
    message = "the request must be at most 1000 bytes (max_request_size)"
    assert await refusal(server, too_long) == ("RESOURCE_EXHAUSTED", message)
    far_too_long = infer_request(("text_input", "BYTES", [1], {"bytes_contents": [b"h" * 100_000]}))
    assert (await refusal(server, far_too_long))[0] == "RESOURCE_EXHAUSTED"


async def test_a_compressed_bomb(server: RunningServer) -> None:
    """A message is refused by its length after decompression, which gRPC stops where it exceeds the bound."""
    bomb = infer_request(("text_input", "BYTES", [1], {"bytes_contents": [bytes(20_000_000)]}))
    found = await refusal(server, bomb, compression=grpc.Compression.Gzip)
    assert found == ("RESOURCE_EXHAUSTED", "Decompressed message larger than max")
    small = infer_request(TEXT)
    async with stub_of(server) as stub:
        assert (await stub.ModelInfer(small, compression=grpc.Compression.Gzip)).outputs


@pytest.mark.parametrize(
    ("id_", "metadata", "abort_by"),
    [
        ("mine", (), "mine"),
        ("", [("x-request-id", "theirs")], "theirs"),
        ("mine", [("x-request-id", "theirs")], "mine"),
    ],
)
async def test_the_id_of_a_request(server: RunningServer, id_: str, metadata: Any, abort_by: str) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    request = infer_request(TEXT, ("return_finish_reason", "BOOL", [1], {"bool_contents": [True]}), id=id_)
    async with stub_of(server) as stub:
        call = asyncio.ensure_future(stub.ModelInfer(request, metadata=metadata))
        await script.started.wait()
        assert (await server.post("/v1/abort_request", {"request_id": abort_by})).status == 200
        response = await call
    assert response.id == id_
    assert response.raw_output_contents[1][4:] == b"abort"


WRITES_PIECES = """\
from djl_python.output_formatter import output_formatter, TextGenerationOutput

@output_formatter
def f(request_output: TextGenerationOutput) -> str:
    sequence = request_output.sequences[request_output.best_sequence_index]
    token, first, last = sequence.get_next_token()
    return f"<{token.text}>"
"""


async def test_a_formatter_of_pieces(serve: Serve, model_dir: ModelDirectory) -> None:
    """A whole answer has them all in one response, a stream each in its own."""
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": WRITES_PIECES}), grpc=True)
    server.scripted.enqueue(*[Script("one two") for _ in range(3)])
    assert await output(server, infer_request(TEXT)) == b"<one>< two>"
    stream = ("stream", "BOOL", [1], {"bool_contents": [True]})
    async with stub_of(server) as stub:
        for inputs, expected in (((TEXT,), [b"<one>< two>"]), ((TEXT, stream), [b"<one>", b"< two>"])):
            responses = stub.ModelStreamInfer(iter([infer_request(*inputs)]))
            assert [each.infer_response.raw_output_contents[0][4:] async for each in responses] == expected


async def test_a_formatter_that_writes_nothing(serve: Serve, model_dir: ModelDirectory) -> None:
    code = WRITES_PIECES.replace('return f"<{token.text}>"', 'return ""')
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": code}), grpc=True)
    assert await refusal(server, infer_request(TEXT)) == ("INTERNAL", "the output formatter wrote nothing")


async def test_a_formatter_that_raises(serve: Serve, model_dir: ModelDirectory) -> None:
    code = FORMATTER.replace('return {"by": "NAME", **response_data}', 'raise ValueError("no")')
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": code}), grpc=True)
    status, message = await refusal(server, infer_request(TEXT))
    assert status == "INTERNAL"
    assert "ValueError: no" in message


async def test_a_model_function_is_called_over_http_only(serve: Serve, model_dir: ModelDirectory) -> None:
    function = "from djl_python import Output\ndef handle(inputs):\n    return Output().add('x')\n"
    server = await serve(model_dir({"model.py": function}), grpc=True)
    message = "model `model` answers with a function that does not accept tensors: call it over HTTP"
    assert await refusal(server, infer_request(TEXT)) == ("INVALID_ARGUMENT", message)
    async with stub_of(server) as stub:
        metadata = await stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="model"))
    assert (metadata.platform, len(metadata.inputs)) == ("model_function", 0)
