"""The methods of KServe's and Triton's gRPC service."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from google.protobuf import json_format
from grpc import StatusCode
from tritonclient.grpc import service_pb2

from lmi_core.errors import InvalidPayload, LmiError
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.served_model import ManagedModel
from lmi_handlers.access.control import AccessControl
from lmi_handlers.kserve_grpc.answering import InferStream, abort, caller, infer
from lmi_handlers.triton import metadata

LOADS_NOTHING = "the models are those that the server was started with: they cannot be loaded or unloaded here"
NO_SHARED_MEMORY = "shared memory is not served: send the tensors in the requests"
NOT_SERVED = {
    **dict.fromkeys(("RepositoryModelLoad", "RepositoryModelUnload"), LOADS_NOTHING),
    **{f"SystemSharedMemory{action}": NO_SHARED_MEMORY for action in ("Register", "Status", "Unregister")},
    **{f"CudaSharedMemory{action}": NO_SHARED_MEMORY for action in ("Register", "Status", "Unregister")},
    "TraceSetting": "requests are not traced here",
    "LogSettings": "logging is set when the server is started, by --log-level",
}

Method = Callable[[Any, Any], Awaitable[Any]]


class InferenceService:
    """The service's methods by name; errors end a method with their status."""

    def __init__(self, dispatcher: Dispatcher, access: AccessControl, write_timeout: float) -> None:
        self._dispatcher = dispatcher
        self._access = access
        self._write_timeout = write_timeout

    def __getattr__(self, name: str) -> Method:
        """Return a method of the service that is not implemented."""
        if name not in NOT_SERVED:
            raise AttributeError(name)

        async def refuse(request: Any, context: Any) -> None:
            await context.abort(StatusCode.UNIMPLEMENTED, NOT_SERVED[name])

        return refuse

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return service_pb2.ServerReadyResponse(ready=await _is_ready(self._dispatcher))

    async def ModelReady(self, request: Any, context: Any) -> Any:
        return service_pb2.ModelReadyResponse(ready=await _is_ready(self._dispatcher, request))

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        await self._check(context)
        return _message(metadata.server_description(), service_pb2.ServerMetadataResponse)

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        model = await self._model(request, context)
        return _message(metadata.model_description(model, self._dispatcher), service_pb2.ModelMetadataResponse)

    async def ModelConfig(self, request: Any, context: Any) -> Any:
        model = await self._model(request, context)
        return _message({"config": metadata.configuration(model)}, service_pb2.ModelConfigResponse)

    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        await self._check(context)
        models = [await self._model(request, context)] if request.name else metadata.every_version(self._dispatcher)
        return _message(
            {"model_stats": [metadata.statistics(model) for model in models]}, service_pb2.ModelStatisticsResponse
        )

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:
        await self._check(context)
        if request.repository_name:
            message = f"`repository_name` must be empty: there is only one. Given: {request.repository_name}"
            await abort(context, InvalidPayload(message))
        models = await metadata.index(self._dispatcher, ready_only=request.ready)
        return _message({"models": models}, service_pb2.RepositoryIndexResponse)

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        return await infer(self._dispatcher, self._access, request, context)

    async def ModelStreamInfer(self, requests: Any, context: Any) -> None:
        await InferStream(self._dispatcher, self._access, context, self._write_timeout).run(requests)

    async def _check(self, context: Any) -> None:
        """End the call if the client may not see the models."""
        try:
            self._access.check_client(caller(context))
        except LmiError as error:
            await abort(context, error)

    async def _model(self, request: Any, context: Any) -> ManagedModel:
        """Return the model named in a request, or end the call if there is none of that name and version."""
        await self._check(context)
        try:
            return _find(self._dispatcher, request)
        except LmiError as error:
            await abort(context, error)


def _find(dispatcher: Dispatcher, request: Any) -> ManagedModel:
    """Return the model named in a request. Raise ModelNotFound for an unknown model or version."""
    return metadata.find_version(request.name, request.version or None, dispatcher)


async def _is_ready(dispatcher: Dispatcher, request: Any = None) -> bool:
    """Return whether the model named in a request accepts requests; without a request, whether every model does."""
    try:
        await (dispatcher if request is None else _find(dispatcher, request)).health()
    except LmiError:
        return False
    return True


def _message(content: Mapping[str, Any], message_type: Callable[[], Any]) -> Any:
    """Return a message with the members of the HTTP dialect's answer."""
    return json_format.ParseDict(content, message_type())
