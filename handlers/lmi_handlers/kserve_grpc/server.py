"""The gRPC server, beside the one of HTTP."""

import grpc

from lmi_core.errors import ConfigurationError
from lmi_core.serving.dispatcher import Dispatcher
from lmi_handlers.kserve_grpc.definitions import service_pb2_grpc
from lmi_handlers.kserve_grpc.service import InferenceService

GRACE_SECONDS = 1.0  # for calls that end when the server stops, after those in flight had time to
MESSAGE_OVERHEAD = 64 * 1024  # bytes: a message a little too large is refused with the model's own words
NO_LIMIT = -1


class GrpcServer:
    """A server of KServe's protocol over gRPC."""

    def __init__(self, dispatcher: Dispatcher, host: str, port: int) -> None:
        self.host = host
        self.port = port  # replaced by the port taken in `listen`, if 0
        self._dispatcher = dispatcher
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def listen(self) -> None:
        """Start to listen. Raise ConfigurationError where the address is in use or not available."""
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._dispatcher.max_request_size + MESSAGE_OVERHEAD),
                ("grpc.max_send_message_length", NO_LIMIT),
                ("grpc.so_reuseport", 0),  # a port that is taken is an error
            ]
        )
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(InferenceService(self._dispatcher), server)
        try:
            self.port = server.add_insecure_port(self.address)
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
