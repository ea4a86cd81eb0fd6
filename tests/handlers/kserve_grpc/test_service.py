"""Methods of the service that Triton's client has no call or argument for."""

import grpc
import pytest
from tritonclient.grpc import service_pb2

from lmi_handlers.kserve_grpc.service import NOT_SERVED, InferenceService
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.kserve_grpc.asking import stub_of

METHODS = [method.name for method in service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods]


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    """Start a server of two models, one of which is still loading."""
    model_dir({"serving.properties": SCRIPTED}, name="store/one")
    store = model_dir({"serving.properties": SCRIPTED}, name="store/two").parent
    server = await serve(store, grpc=True)
    server.dispatcher.models["two"].ready = False
    return server


def test_every_method_of_the_definitions_is_there() -> None:
    own = {name for name in vars(InferenceService) if not name.startswith("_")}
    assert own | NOT_SERVED.keys() == set(METHODS)
    assert not own & NOT_SERVED.keys()


async def test_index(server: RunningServer) -> None:
    async with stub_of(server) as stub:
        every = await stub.RepositoryIndex(service_pb2.RepositoryIndexRequest())
        ready = await stub.RepositoryIndex(service_pb2.RepositoryIndexRequest(ready=True))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.RepositoryIndex(service_pb2.RepositoryIndexRequest(repository_name="mine"))
    assert [(model.name, model.state) for model in every.models] == [("one", "READY"), ("two", "LOADING")]
    assert [model.name for model in ready.models] == ["one"]
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert raised.value.details() == "`repository_name` must be empty: there is only one. Given: mine"


async def test_statistics_of_every_model(server: RunningServer) -> None:
    async with stub_of(server) as stub:
        found = await stub.ModelStatistics(service_pb2.ModelStatisticsRequest())
    assert [model.name for model in found.model_stats] == ["one", "two"]


async def test_a_request_without_a_model(server: RunningServer) -> None:
    async with stub_of(server) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.ModelInfer(service_pb2.ModelInferRequest())
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
