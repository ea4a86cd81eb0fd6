"""The answers to infer requests: one message for one, or a stream of both."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, NoReturn

import grpc

from lmi_core.errors import LmiError
from lmi_core.serving.dispatcher import Dispatcher
from lmi_handlers.http.answer import model_response
from lmi_handlers.kserve_grpc.calls import headers_of
from lmi_handlers.kserve_grpc.definitions import service_pb2
from lmi_handlers.kserve_grpc.exchange import GrpcExchange
from lmi_handlers.kserve_grpc.statuses import status_code

logger = logging.getLogger(__name__)

ENDS_AT_ERROR = "triton_grpc_error"  # metadata: "true" ends a stream at its first error, with the error's status


async def abort(context: Any, error: LmiError) -> NoReturn:
    """End a call with an error's status."""
    await context.abort(status_code(error), error.message)
    raise AssertionError("aborting raises")


async def infer(dispatcher: Dispatcher, message: Any, context: Any) -> Any:
    """Return the only response to a request, or end the call with an error's status."""
    responses: list[Any] = []

    async def keep(response: Any) -> None:
        responses.append(response)

    headers = headers_of(context.invocation_metadata())
    exchange = GrpcExchange(message, headers, context.peer(), keep, streams=False)
    error = await _answer(dispatcher, exchange, "ModelInfer")
    if error is not None:
        await abort(context, error)
    return responses[0]


class InferStream:
    """The requests of one stream, which are answered at the same time, and their responses."""

    def __init__(self, dispatcher: Dispatcher, context: Any) -> None:
        self._dispatcher = dispatcher
        self._context = context
        self._headers: Mapping[str, str] = headers_of(context.invocation_metadata())
        self._ends_at_error = self._headers.get(ENDS_AT_ERROR, "").lower() == "true"
        self._writing = asyncio.Lock()

    async def run(self, requests: Any) -> None:
        """Answer every request until the client ends the stream; that it leaves aborts those that run."""
        try:
            async with asyncio.TaskGroup() as tasks:
                async for message in requests:
                    tasks.create_task(self._answer(message))
        except ExceptionGroup as failures:
            first = failures.exceptions[0]
            if not isinstance(first, LmiError):
                raise
            await abort(self._context, first)

    async def _answer(self, message: Any) -> None:
        """Answer one request. Raise its error only where that is to end the stream."""
        exchange = GrpcExchange(message, self._headers, self._context.peer(), self._send, streams=True)
        error = await _answer(self._dispatcher, exchange, "ModelStreamInfer")
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
            await self._context.write(response)


async def _answer(dispatcher: Dispatcher, exchange: GrpcExchange, method: str) -> LmiError | None:
    """Send the responses to a request, and return the error that ended it, if one did."""
    begun = time.perf_counter()
    error: LmiError | None = None
    try:
        await model_response(dispatcher, exchange)
    except LmiError as failure:
        error = failure
        logger.info("request %s failed: %s: %s", exchange.request_id, error.kind, " ".join(error.message.splitlines()))
    except (asyncio.CancelledError, grpc.aio.BaseError):  # the latter where a response cannot be sent any more
        logger.info("request %s: %s ended: the client left, or the server stops", exchange.request_id, method)
        raise asyncio.CancelledError from None
    except Exception:
        logger.exception("request %s failed", exchange.request_id)
        error = LmiError("internal error: the server's log has more under this request's id")
    milliseconds = (time.perf_counter() - begun) * 1000
    code = grpc.StatusCode.OK if error is None else status_code(error)
    logger.info("request %s: %s %s in %.0f ms", exchange.request_id, method, code.name, milliseconds)
    return error
