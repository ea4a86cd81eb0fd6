"""Requests and streams of Triton's gRPC client, for the tests of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy
from tritonclient.grpc import InferInput, InferResult
from tritonclient.grpc.aio import InferenceServerClient as AioClient

from tests.conftest import RunningServer

WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
TYPES = {"INT32": "int32", "UINT64": "uint64", "FP32": "float32", "BOOL": "bool"}


@asynccontextmanager
async def client_of(server: RunningServer) -> AsyncIterator[Any]:
    async with AioClient(server.grpc_address) as client:
        yield client


def tensor(name: str, values: Any, datatype: str) -> InferInput:
    array = numpy.array(values, TYPES.get(datatype, object))
    found = InferInput(name, array.shape, datatype)
    found.set_data_from_numpy(array)
    return found


def text(prompt: str = "client input", **flags: bool) -> list[InferInput]:
    return [tensor("text_input", [prompt], "BYTES"), *(tensor(name, [value], "BOOL") for name, value in flags.items())]


def prompt(*ids: int, **flags: bool) -> list[InferInput]:
    inputs = [tensor("request_output_len", [[8]], "INT32"), tensor("input_ids", [ids], "INT32")]
    return inputs + [tensor(name, [value], "BOOL") for name, value in flags.items()]


async def stream(server: RunningServer, *requests: dict[str, Any], **options: Any) -> list[Any]:
    """Return the (result, error) pairs of a stream with these requests."""

    async def asked() -> AsyncIterator[dict[str, Any]]:
        for request in requests:
            yield {"model_name": "model", **request}

    async with client_of(server) as client:
        return [pair async for pair in client.stream_infer(asked(), **options)]


def is_final(result: InferResult) -> bool:
    return bool(result.get_response().parameters["triton_final_response"].bool_param)


def texts(pairs: list[Any]) -> list[str]:
    assert [str(error) for _, error in pairs if error is not None] == []
    return [result.as_numpy("text_output")[0].decode() for result, _ in pairs]
