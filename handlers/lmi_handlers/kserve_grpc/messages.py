"""The service's methods as gRPC calls them, with messages parsed here, so that damaged ones are the client's error."""

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from lmi_core.errors import BodyTimeout, InvalidPayload, LmiError
from lmi_handlers.kserve_grpc.answering import abort
from lmi_handlers.kserve_grpc.definitions import service_pb2
from lmi_handlers.kserve_grpc.service import InferenceService, Method
from lmi_handlers.telemetry.refusals import Refusals

logger = logging.getLogger(__name__)
_refusals = Refusals(lambda count: logger.info("%d more damaged messages were refused within a second", count))

SERVICE = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]


def rpc_handlers(service: InferenceService, message_timeout: float) -> grpc.GenericRpcHandler:
    """Return gRPC's handlers of all methods.

    The only message of a call must be complete after `message_timeout` seconds; in a stream, requests may come at any
    time.
    """
    handlers = {}
    for method in SERVICE.methods:
        answer, message_type = getattr(service, method.name), getattr(service_pb2, method.input_type.name)
        response_type = getattr(service_pb2, method.output_type.name)
        if method.client_streaming:
            handler = grpc.stream_stream_rpc_method_handler
            behavior = partial(_answer_stream, answer, message_type)
        else:  # even for a stream, because gRPC would wait forever for the message that a unary method needs
            handler = grpc.stream_unary_rpc_method_handler
            behavior = partial(_answer_one, answer, message_type, message_timeout)
        handlers[method.name] = handler(behavior, response_serializer=response_type.SerializeToString)
    return grpc.method_handlers_generic_handler(SERVICE.full_name, handlers)


async def _answer_one(answer: Method, message_type: Any, timeout: float, requests: Any, context: Any) -> Any:
    try:
        async with asyncio.timeout(timeout):
            message = await anext(_messages(message_type, requests, context), None)
        if message is None:
            raise InvalidPayload("the call has no message")
    except TimeoutError:
        await abort(context, BodyTimeout(f"the message must be complete within {timeout:.0f} seconds (body_timeout)"))
    except LmiError as error:
        await abort(context, error)
    return await answer(message, context)


async def _answer_stream(answer: Method, message_type: Any, requests: Any, context: Any) -> None:
    await answer(_messages(message_type, requests, context), context)


async def _messages(message_type: Any, requests: Any, context: Any) -> AsyncIterator[Any]:
    """Yield the messages of a call. Raise InvalidPayload if one is damaged."""
    async for data in requests:
        try:
            message = message_type.FromString(data)
        except DecodeError as error:
            if _refusals.may_log():
                logger.info("a damaged message of %d bytes from %s was refused: %s", len(data), context.peer(), error)
            raise InvalidPayload(str(error)) from None
        yield message
