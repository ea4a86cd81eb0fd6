"""The service's own stub, for requests that Triton's client does not make."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tests.conftest import RunningServer


@asynccontextmanager
async def stub_of(server: RunningServer) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(server.grpc_address) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def infer_request(*inputs: tuple[str, str, list[int], dict[str, Any]], **members: Any) -> Any:
    """Return a request with the inputs' name, type, shape and contents."""
    request = service_pb2.ModelInferRequest(model_name="model", **members)
    for name, datatype, shape, contents in inputs:
        tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
        if contents:
            tensor.contents.CopyFrom(service_pb2.InferTensorContents(**contents))
    return request


async def refusal(server: RunningServer, request: Any, **options: Any) -> tuple[str, str]:
    """Return the status code and message of a request's error."""
    async with stub_of(server) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ModelInfer(request, **options)
    return raised.value.code().name, str(raised.value.details())
