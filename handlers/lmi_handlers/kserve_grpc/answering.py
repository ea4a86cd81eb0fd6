"""Infer requests and their answers: one response for one request, or streams of both."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from math import ceil
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
from grpc import StatusCode
from tritonclient.grpc import service_pb2

from lmi_core.admission.admission import current_key
from lmi_core.errors import FormatterFailed, GenerationTimeout, LmiError, Overloaded, PayloadTooLarge
from lmi_core.formatter import OutputFormatter, join_events
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.tensors import LENGTH_SIZE, LastResponse, Tensor
from lmi_core.handler import Call
from lmi_core.host.off_loop import current_client
from lmi_core.inference import ResponseWriter
from lmi_core.metrics.recent_errors import without_values
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.serving.backend_failures import writing_failure
from lmi_core.serving.model import Model
from lmi_core.tolerance import names_of
from lmi_handlers.access.control import AccessControl, Caller
from lmi_handlers.base.model_exchange import ModelExchange
from lmi_handlers.base.statuses import USUAL
from lmi_handlers.http.answer import model_response
from lmi_handlers.http.exchange import check_result
from lmi_handlers.kserve_grpc.handler import (
    EMPTY_FINAL_RESPONSE,
    GrpcFormatter,
    GrpcHandler,
    headers_of,
    infer_call,
    plain,
    request_id,
)
from lmi_handlers.telemetry.refusals import refusals_of
from lmi_handlers.telemetry.request_end import RequestEnd
from lmi_handlers.triton.infer_payload import InferPayload

logger = logging.getLogger(__name__)
_refusals = refusals_of(logger)

IP = ("ipv4", "ipv6")  # kinds of peer addresses that contain a host
OK = 200  # an HTTP status
LOOKS = 4  # checks during a write before its client counts as stalled

ENDS_AT_ERROR = "triton_grpc_error"  # metadata: "true" ends a stream at its first error, with the error's status

# The code for each HTTP status; any other is an invalid argument.
CODES = {
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    408: StatusCode.DEADLINE_EXCEEDED,
    413: StatusCode.RESOURCE_EXHAUSTED,  # gRPC's own for a message that is too large
    424: StatusCode.INTERNAL,
    429: StatusCode.RESOURCE_EXHAUSTED,
    499: StatusCode.CANCELLED,
    500: StatusCode.INTERNAL,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}

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
            raise writing_failure(formatter, error) from error
        if tensors is not None:
            await self._respond(tensors, final=output.finished)

    async def respond(self, response: Mapping[str, Tensor], writer: ResponseWriter) -> None:
        """Send one of a backend's responses."""
        await self._respond(response, final=not writer.streams or isinstance(response, LastResponse))

    async def finish(self) -> None:
        """Send an empty final response if the client asked for one and none was marked as final."""
        if self._ended:
            return
        if not self._streams:
            raise FormatterFailed("the output formatter wrote nothing")
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


async def abort(context: Any, error: LmiError) -> NoReturn:
    """End a call with an error's status and, in the form of HTTP's header and of gRPC's own retries, when to retry."""
    advice: tuple[tuple[str, str], ...] = ()
    if error.retry_after is not None:
        seconds = max(1, ceil(error.retry_after))
        advice = (("retry-after", str(seconds)), ("grpc-retry-pushback-ms", str(1000 * seconds)))
    await context.abort(status_code(error), error.message, advice)
    raise AssertionError("aborting raises")


def caller(context: Any) -> Caller:
    """Return the caller, by the connection's address and the metadata."""
    kind, _, address = unquote(context.peer()).partition(":")
    host = address.rpartition(":")[0].strip("[]") if kind in IP else ""
    return Caller(host, headers_of(context.invocation_metadata()))


async def infer(dispatcher: Dispatcher, access: AccessControl, message: Any, context: Any) -> Any:
    """Return the only response to a request, or end the call with an error's status."""
    responses: list[Any] = []

    async def keep(response: Any) -> None:
        responses.append(response)

    client = caller(context)
    exchange = GrpcExchange(message, client.headers, context.peer(), keep, streams=False)
    error = await _answer(dispatcher, access, client, exchange, "ModelInfer")
    if error is not None:
        await abort(context, error)
    return responses[0]


class InferStream:
    """The requests of one stream, which are answered concurrently, and their responses."""

    def __init__(self, dispatcher: Dispatcher, access: AccessControl, context: Any, write_timeout: float) -> None:
        """Create the stream, which ends if its client does not read available data for `write_timeout` seconds."""
        self._dispatcher = dispatcher
        self._access = access
        self._caller = caller(context)
        self._context = context
        self._ends_at_error = self._caller.headers.get(ENDS_AT_ERROR, "").lower() == "true"
        self._writing = asyncio.Lock()
        self._write_timeout = write_timeout
        self._seen_writing: int | None = None  # the number of checks during the current write; None: there is none
        self._watch: asyncio.TimerHandle | None = None

    async def run(self, requests: Any) -> None:
        """Answer every request until the client ends the stream; if it disconnects, running requests are aborted."""
        try:
            async with asyncio.timeout(None) as stalled, asyncio.TaskGroup() as tasks:
                self._look(stalled)
                async for message in requests:
                    tasks.create_task(self._answer(message))
        except TimeoutError:
            logger.info("a stream ended: its client read nothing for %g seconds (write_timeout)", self._write_timeout)
            message = f"the client read nothing for {self._write_timeout:g} seconds (write_timeout)"
            await abort(self._context, GenerationTimeout(message))
        except ExceptionGroup as failures:
            first = failures.exceptions[0]
            if not isinstance(first, LmiError):
                raise
            await abort(self._context, first)
        finally:
            if self._watch is not None:
                self._watch.cancel()

    def _look(self, stalled: asyncio.Timeout) -> None:
        """Check from time to time whether a response waits for its client, without a timer for each.

        Checks are counted instead of seconds, because after a long pause of the server itself, every client would seem
        too slow.
        """
        loop = asyncio.get_running_loop()
        if self._seen_writing is not None:
            self._seen_writing += 1
            if self._seen_writing > LOOKS:
                stalled.reschedule(0)
                return
        self._watch = loop.call_later(self._write_timeout / LOOKS, self._look, stalled)

    async def _answer(self, message: Any) -> None:
        """Answer one request. Raise its error only if that must end the stream."""
        exchange = GrpcExchange(message, self._caller.headers, self._context.peer(), self._send, streams=True)
        error = await _answer(self._dispatcher, self._access, self._caller, exchange, "ModelStreamInfer")
        if error is None:
            return
        if self._ends_at_error:
            raise error
        identified = service_pb2.ModelInferResponse(id=message.id)  # tells the client which request has failed
        await self._write(service_pb2.ModelStreamInferResponse(error_message=error.message, infer_response=identified))

    async def _send(self, response: Any) -> None:
        await self._write(service_pb2.ModelStreamInferResponse(infer_response=response))

    async def _write(self, response: Any) -> None:
        async with self._writing:
            self._seen_writing = 0
            await self._context.write(response)
            self._seen_writing = None


async def _answer(
    dispatcher: Dispatcher, access: AccessControl, caller: Caller, exchange: GrpcExchange, method: str
) -> LmiError | None:
    """Send the responses to a request, and return the error that ended it, if one did."""
    ending = RequestEnd(dispatcher, exchange, method)
    error: LmiError | None = None
    try:
        permit = access.check_client(caller)
        exchange.client, exchange.key = permit.client, permit.key_holder
        current_client.set(permit.client)
        current_key.set(permit.sharing_key)
        with access.counted(permit) as exchange.usage:
            await model_response(dispatcher, exchange)
    except LmiError as failure:
        error = failure
        if not isinstance(error, Overloaded) or _refusals.may_log():
            logger.info("request %s failed: %s: %s", exchange.request_id, error.kind, without_values(error.message))
    except (asyncio.CancelledError, grpc.aio.BaseError):  # the latter where a response cannot be sent any more
        ending.note_disconnect()
        raise asyncio.CancelledError from None
    except Exception:
        logger.exception("request %s failed", exchange.request_id)
        error = LmiError("internal error: see the server's log for this request's id")
    if error is None:
        ending.note_answer(OK, grpc.StatusCode.OK.name)
    else:
        ending.note_error(error)
        ending.note_answer(USUAL.of(error), status_code(error).name)
    return error


def status_code(error: LmiError) -> StatusCode:
    return CODES.get(USUAL.of(error), StatusCode.INVALID_ARGUMENT)
