"""The gRPC server."""

import grpc

from lmi_core.errors import ConfigurationError
from lmi_core.registry.dispatcher import Dispatcher
from lmi_handlers.access.certificate import Certificate
from lmi_handlers.access.control import AccessControl
from lmi_handlers.http.connections.limits import DEFAULT_LIMITS, ConnectionLimits
from lmi_handlers.kserve_grpc.messages import rpc_handlers
from lmi_handlers.kserve_grpc.service import InferenceService

GRACE_SECONDS = 1.0  # for the remaining calls when the server stops, after calls in flight had time to finish
MESSAGE_OVERHEAD = 64 * 1024  # bytes; lets a slightly too large message reach the model's own error
NO_LIMIT = -1
SLOWEST_CLIENT = 64 * 1024  # bytes per second; gRPC reports whole messages, not the progress of one
MAX_STREAMS = 1000  # concurrent calls per connection; the client delays further ones


def _credentials(certificate: Certificate) -> grpc.ServerCredentials:
    """Return server credentials that use the current certificate for each new connection."""

    def present() -> grpc.ServerCertificateConfiguration:
        chain, private_key = certificate.pem
        return grpc.ssl_server_certificate_configuration([(private_key, chain)])

    return grpc.dynamic_ssl_server_credentials(present(), present)


def _connection_options(limits: ConnectionLimits) -> list[tuple[str, int]]:
    """Return gRPC's own limits of connections; unlike HTTP's, its idle connections make no room for new ones."""
    handshake, idle = round(1000 * limits.header_timeout), round(1000 * limits.keep_alive_timeout)
    return [
        ("grpc.max_allowed_incoming_connections", limits.affordable_connections),
        ("grpc.server_handshake_timeout_ms", handshake),  # of TLS and HTTP/2
        ("grpc.max_connection_idle_ms", idle),
        ("grpc.keepalive_time_ms", idle),  # closes connections whose client has disappeared during a call
        ("grpc.max_concurrent_streams", MAX_STREAMS),
    ]


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
        service = InferenceService(self._dispatcher, self._access, self._limits.write_timeout)
        longest = self._dispatcher.max_request_size + MESSAGE_OVERHEAD
        server = grpc.aio.server(
            handlers=[rpc_handlers(service, self._limits.body_timeout + longest / SLOWEST_CLIENT)],
            options=[
                ("grpc.max_receive_message_length", longest),
                ("grpc.max_send_message_length", NO_LIMIT),
                ("grpc.so_reuseport", 0),  # makes a port that is in use an error
                *_connection_options(self._limits),
            ],
            maximum_concurrent_rpcs=self._limits.max_connections,
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
