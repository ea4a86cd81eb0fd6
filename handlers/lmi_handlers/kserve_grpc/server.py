"""The gRPC server, and the parser of messages: a damaged one is the client's error."""

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from lmi_core.errors import BodyTimeout, ConfigurationError, InvalidPayload, LmiError
from lmi_core.registry.dispatcher import Dispatcher
from lmi_handlers.access.certificate import Certificate
from lmi_handlers.access.control import AccessControl
from lmi_handlers.http.connections.limits import DEFAULT_LIMITS, ConnectionLimits
from lmi_handlers.kserve_grpc.answering import abort
from lmi_handlers.kserve_grpc.service import InferenceService, Method
from lmi_handlers.telemetry.refusals import Refusals

logger = logging.getLogger(__name__)
_refusals = Refusals(lambda count: logger.info("%d more damaged messages were refused within a second", count))

SERVICE = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
GRACE_SECONDS = 1.0  # for the remaining calls when the server stops, after calls in flight had time to finish
MESSAGE_OVERHEAD = 64 * 1024  # bytes; lets a slightly too large message reach the model's own error
NO_LIMIT = -1
SLOWEST_CLIENT = 64 * 1024  # bytes per second; gRPC reports whole messages, not the progress of one
MAX_STREAMS = 1000  # concurrent calls per connection; the client delays further ones


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


def _credentials(certificate: Certificate) -> grpc.ServerCredentials:
    """Return server credentials that use the current certificate for each new connection."""

    def present() -> grpc.ServerCertificateConfiguration:
        chain, private_key = certificate.pem
        return grpc.ssl_server_certificate_configuration([(private_key, chain)])

    return grpc.dynamic_ssl_server_credentials(present(), present)


class GrpcServer:
    """A server of KServe's protocol over gRPC."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        host: str,
        port: int,
        access: AccessControl | None = None,
        limits: ConnectionLimits = DEFAULT_LIMITS,
    ) -> None:
        self.host = host
        self.port = port  # if 0, replaced by the port chosen in `listen`
        self._dispatcher = dispatcher
        self._limits = limits
        self._access = AccessControl(dispatcher) if access is None else access
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def listen(self) -> None:
        """Start listening. Raise ConfigurationError if the address is in use or unavailable."""
        limits, idle = self._limits, round(1000 * self._limits.keep_alive_timeout)
        service = InferenceService(self._dispatcher, self._access, limits.write_timeout)
        longest = self._dispatcher.registry.limits.max_request_size + MESSAGE_OVERHEAD
        server = grpc.aio.server(
            handlers=[rpc_handlers(service, limits.body_timeout + longest / SLOWEST_CLIENT)],
            options=[
                ("grpc.max_receive_message_length", longest),
                ("grpc.max_send_message_length", NO_LIMIT),
                ("grpc.so_reuseport", 0),  # makes a port that is in use an error
                ("grpc.max_allowed_incoming_connections", limits.affordable_connections),
                ("grpc.server_handshake_timeout_ms", round(1000 * limits.header_timeout)),  # of TLS and HTTP/2
                # Unlike HTTP's, idle connections make no room for new ones
                ("grpc.max_connection_idle_ms", idle),
                ("grpc.keepalive_time_ms", idle),  # closes connections whose client has disappeared during a call
                ("grpc.max_concurrent_streams", MAX_STREAMS),
            ],
            maximum_concurrent_rpcs=limits.max_connections,
        )
        try:
            certificate = self._access.options.certificate
            if certificate is None:
                self.port = server.add_insecure_port(self.address)
            else:
                self.port = server.add_secure_port(self.address, _credentials(certificate))
        except RuntimeError:
            raise ConfigurationError(
                f"cannot listen on {self.address} for gRPC: the port is taken, or the address is not this host's."
                " Choose with --host and --grpc-port"
            ) from None
        await server.start()
        self._server = server

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(GRACE_SECONDS)
