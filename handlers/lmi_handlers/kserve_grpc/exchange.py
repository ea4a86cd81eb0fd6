"""One infer request over gRPC and its responses."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from lmi_core.errors import FormatterFailed, LmiError, PayloadTooLarge
from lmi_core.formatter import OutputFormatter, join_events
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.tensors import LENGTH_SIZE, LastResponse, Tensor
from lmi_core.handler import Call
from lmi_core.inference import ResponseWriter
from lmi_core.serving.backend_failures import check_result, writing_failure
from lmi_core.serving.model import Model
from lmi_core.tolerance import names_of
from lmi_handlers.base.model_exchange import ModelExchange
from lmi_handlers.kserve_grpc.calls import EMPTY_FINAL_RESPONSE, infer_call, plain, request_id
from lmi_handlers.kserve_grpc.handler import GrpcFormatter, GrpcHandler
from lmi_handlers.triton.infer_payload import InferPayload

logger = logging.getLogger(__name__)

Send = Callable[[Any], Awaitable[None]]


class GrpcExchange(ModelExchange[None]):
    """One request over gRPC: reads the call, sends the responses."""

    handler: GrpcHandler

    def __init__(self, message: Any, headers: Mapping[str, str], peer: str, send: Send, *, streams: bool) -> None:
        super().__init__(GrpcHandler(streams=streams), headers, request_id(message, headers))
        self._message = message
        self._peer = peer
        self._send = send
        self._streams = streams
        self._ignored: Collection[str] = ()
        self._ended = False  # whether the last response has been sent
        self._text = bytearray()  # output of the model's own formatter, not yet sent

    def model_name(self, only: Model | None) -> str | None:
        name: str = self._message.model_name
        return name

    def model_version(self) -> str | None:
        version: str = self._message.model_version
        return version or None

    async def call(self, limit: int) -> Call:
        """Return the call. Raise PayloadTooLarge if the message is longer than `limit` bytes."""
        if self._message.ByteSize() > limit:
            raise PayloadTooLarge(f"the request must be at most {limit} bytes (max_request_size)")
        return infer_call(self._message, self.headers, self._peer)

    def ignore(self, model: Model, names: Collection[str]) -> None:
        """List ignored parameters in the parameters of the responses, and log each once."""
        parameters = model.backend.parameters_type
        model.ignored.report(names, lambda: names_of([InferPayload, parameters]) | {"adapters"})
        self._ignored = names

    async def write(self, output: GenerationOutput, formatter: OutputFormatter) -> None:
        """Send the answer after the latest step; the text of the model's own formatter is `text_output`."""
        try:
            tensors = self._tensors(output, formatter)
        except LmiError:
            raise
        except (Exception, SystemExit) as error:  # a user's formatter may raise anything
            logger.exception("request %s: an output formatter raised", self.request_id)
            raise writing_failure(error) from error
        if tensors is not None:
            await self._respond(tensors, final=output.finished)

    async def respond(self, response: Mapping[str, Tensor], writer: ResponseWriter) -> None:
        """Send one of a backend's responses."""
        await self._respond(response, final=not writer.streams or isinstance(response, LastResponse))

    async def finish(self) -> None:
        """Send an empty final response if the client asked for one and none was marked as final."""
        if not self._streams and not self._ended:
            raise FormatterFailed("the output formatter wrote nothing")
        if self._ended:
            return
        if plain(self._message.parameters).get(EMPTY_FINAL_RESPONSE):
            await self._respond({}, final=True)

    def _tensors(self, output: GenerationOutput, formatter: OutputFormatter) -> dict[str, Tensor] | None:
        """Return the tensors to send after the latest step; None if there are none yet."""
        if isinstance(formatter, GrpcFormatter):
            return formatter.tensors(output)
        self._text += join_events(check_result(formatter, formatter.format(output)))
        if not self._text or (self.handler.whole and not output.finished):
            return None
        text, self._text = bytes(self._text), bytearray()
        return {"text_output": Tensor("BYTES", (1,), len(text).to_bytes(LENGTH_SIZE, "little") + text)}

    async def _respond(self, tensors: Mapping[str, Tensor], *, final: bool) -> None:
        self._ended = final
        await self._send(self.handler.writer.message(tensors, self._ignored, final if self._streams else None))
