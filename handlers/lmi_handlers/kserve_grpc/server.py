"""The gRPC server."""

import grpc

from lmi_core.errors import ConfigurationError
from lmi_core.registry.dispatcher import Dispatcher
from lmi_handlers.access.certificate import Certificate
from lmi_handlers.access.control import AccessControl
from lmi_handlers.http.connections.limits import DEFAULT_LIMITS
from lmi_handlers.kserve_grpc.definitions import service_pb2_grpc
from lmi_handlers.kserve_grpc.service import InferenceService

GRACE_SECONDS = 1.0  # for calls that end when the server stops, after those in flight had time to
MESSAGE_OVERHEAD = 64 * 1024  # bytes: a message a little too large is refused with the model's own words
NO_LIMIT = -1


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
        write_timeout: float = DEFAULT_LIMITS.write_timeout,
    ) -> None:
        self.host = host
        self.port = port  # replaced by the port taken in `listen`, if 0
        self._dispatcher = dispatcher
        self._write_timeout = write_timeout
        self._access = AccessControl(dispatcher) if access is None else access
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def listen(self) -> None:
        """Start listening. Raise ConfigurationError if the address is in use or unavailable."""
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._dispatcher.max_request_size + MESSAGE_OVERHEAD),
                ("grpc.max_send_message_length", NO_LIMIT),
                ("grpc.so_reuseport", 0),  # a port that is taken is an error
            ]
        )
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
            InferenceService(self._dispatcher, self._access, self._write_timeout), server
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
