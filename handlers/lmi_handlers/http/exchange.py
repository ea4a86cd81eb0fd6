"""One HTTP request and its response."""

import asyncio
import logging
import secrets
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import replace

from aiohttp import web

from lmi_core.errors import (
    FormatterFailed,
    GenerationFailed,
    GenerationTimeout,
    InvalidPayload,
    LmiError,
    Overloaded,
    PayloadTooLarge,
    RequestAborted,
)
from lmi_core.formatter import OutputFormatter, joined
from lmi_core.generation import GenerationOutput
from lmi_core.handler import Answer, Call, Handler, Route
from lmi_core.inference import ResponseWriter
from lmi_core.payloads.tolerance import ignored_header, names_of
from lmi_core.script.function.answers import StreamErrors
from lmi_core.script.function.protocol import Chunk, Head
from lmi_core.serving.model import Model
from lmi_core.tensors import Tensor
from lmi_handlers.http.attributes import named_attributes
from lmi_handlers.http.compressed_bodies import is_compressed
from lmi_handlers.http.stream import Stream

logger = logging.getLogger(__name__)

REQUEST_ID_HEADER = "x-request-id"
INFERENCE_ID_HEADER = "X-Amzn-SageMaker-Inference-Id"  # the client's name of a request, or of SageMaker's own making
IGNORED_HEADER = "X-Lmi-Ignored-Parameters"
LONGEST_REQUEST_ID = 128
RETRY_AFTER_SECONDS = "1"
FAILED = 400  # this status and those above are errors
WHILE_GENERATING = (GenerationFailed, GenerationTimeout, RequestAborted)  # errors of a generation that has begun

Writer = OutputFormatter | ResponseWriter


class Exchange:
    """The state of one request: reads the call, writes the response; `model` and `formatter` are None until found."""

    def __init__(self, handler: Handler, route: Route, request: web.Request) -> None:
        self.handler = handler
        self.payloads = route.payloads
        self.framing = route.framing
        self.compresses = route.compresses
        self.request = request
        self.request_id = request_id(request)
        self.model: Model | None = None
        self.formatter: Writer | None = None
        self.answer_headers: Mapping[str, str] = {}  # those that the parsed call asks for
        self._ignored: dict[str, str] = {}  # the header that lists ignored parameters
        self._call: Call | None = None
        self._response: web.Response | Stream | None = None

    def model_name(self) -> str | None:
        return self.handler.model_name(self.request.match_info, self.request.headers)

    async def call(self, limit: int) -> Call:
        """Return the call; the body is read at the first use.

        Raise PayloadTooLarge as soon as the body is announced, or found, to be longer than `limit` bytes.
        """
        if self._call is None:
            request = self.request
            self._call = Call(
                path_parameters=request.match_info,
                headers=request.headers,
                body=await self._body(limit),
                request_id=self.request_id,
                path=request.path.removesuffix("/") or "/",  # the route's own: it is the same with a slash
                query=request.query,
                peer=request.remote or "",
                attributes=dict(named_attributes(request.headers)),
            )
        return self._call

    def ignore(self, model: Model, names: Collection[str]) -> None:
        """List ignored parameters in a header of the response, whether it succeeds or fails, and log each once."""
        if names:
            parameters = model.backend.parameters_type
            model.ignored.report(names, lambda: names_of([*self.payloads, parameters]) | {"adapters"})
            self._list(names)

    def _list(self, names: Collection[str]) -> None:
        self._ignored = {IGNORED_HEADER: ignored_header(names)}

    def write(self, output: GenerationOutput, formatter: OutputFormatter) -> Coroutine[None, None, None]:
        """Format and send the newest step; an answer that is complete at its first write gets a Content-Length."""
        try:
            data = formatter.format(output)
        except LmiError:
            raise
        except (Exception, SystemExit) as error:  # a user's formatter may raise anything
            logger.exception("request %s: an output formatter raised", self.request_id)
            raise FormatterFailed(f"the output formatter raised {type(error).__name__}: {error}") from error
        return self._put(data, formatter, whole=output.finished)

    async def respond(self, response: Mapping[str, Tensor], writer: ResponseWriter) -> None:
        """Encode and send one of a backend's responses."""
        await self._put(writer.write(response), writer, whole=not writer.streams)

    async def answer(self, answer: Answer) -> None:
        """Send an answer that is complete at once, within the route's frame."""
        self._response = await self._send_framed(answer, {})

    async def relay(self, reply: Head | Chunk) -> None:
        """Send a part of the model function's answer; errors in its stream have the stream's content type."""
        if isinstance(reply, Chunk):
            assert isinstance(self._response, Stream), "the head must be sent first"
            await self._response.send(self._frames(reply.data))
        elif reply.streams:
            self.formatter = StreamErrors(reply.headers)
            self._response = await self._begin(self.formatter, Stream(reply.code, headers_first=True))
        else:
            answer = self.handler.relayed(Answer(reply.code, reply.headers["Content-Type"], reply.body))
            self._response = await self._send_framed(answer, reply.headers | {"Content-Type": answer.content_type})

    async def finish(self) -> web.StreamResponse:
        if self._response is None:
            raise FormatterFailed("the generation ended before its last step")
        if isinstance(self._response, Stream):
            await self._response.end()
        return self._response

    async def send(self, answer: Answer, headers: Mapping[str, str] | None = None) -> web.Response:
        """Send a complete answer with its Content-Length."""
        if answer.ignored:
            self._list(answer.ignored)
        response = web.Response(
            status=answer.status,
            body=answer.body,
            headers=self._headers(answer.content_type, {**answer.headers, **(headers or {})}),
        )
        if self.compresses and answer.status < FAILED:
            response.enable_compression()
        await response.prepare(self.request)
        return response

    async def fail(self, error: LmiError) -> web.StreamResponse:
        """Send an error status or, once a stream has begun, the error in the dialect's form and the stream's end."""
        message = " ".join(error.message.splitlines())
        logger.info("request %s failed: %s: %s", self.request_id, error.kind, message)
        if self._response is None:
            answer = self.handler.identified(self._error_answer(error), self.request_id)
            return await self.send(answer, self._retry_after(error))
        if isinstance(self._response, Stream):
            words = [] if self.formatter is None else self._frames(self._last_words(self.formatter, error))
            await self._response.end([*words, self.framing.failure(error)])
        return self._response

    def _put(self, data: bytes | list[bytes], writer: Writer, *, whole: bool) -> Coroutine[None, None, None]:
        if isinstance(self._response, Stream):
            frames = self._frames(data)
            return self._response.end(frames) if whole else self._response.send(frames)
        return self._put_first(data, writer, whole=whole)

    async def _put_first(self, data: bytes | list[bytes], writer: Writer, *, whole: bool) -> None:
        if whole and isinstance(data, bytes):
            self._response = await self._send_framed(Answer(200, writer.content_type, data), writer.headers)
        elif data:
            self._response = await self._begin(writer, Stream())
            await self._put(data, writer, whole=whole)

    def _last_words(self, formatter: Writer, error: LmiError) -> bytes | list[bytes]:
        try:
            return formatter.error(error)
        except (Exception, SystemExit):  # a user's formatter may fail here too
            logger.exception("request %s: the formatter could not write the error", self.request_id)
            return b""

    def _frames(self, data: bytes | list[bytes]) -> list[bytes]:
        """Return each event in the frame that the route requires."""
        frame = self.framing.frame
        return [frame(data)] if isinstance(data, bytes) else [frame(event) for event in data]

    async def _send_framed(self, answer: Answer, headers: Mapping[str, str]) -> web.Response:
        if answer.status >= FAILED:
            return await self.send(answer, headers)
        framed = self.framing.headers(self._headers(answer.content_type, headers))
        return await self.send(replace(answer, body=self.framing.frame(answer.body)), framed)

    def _headers(self, content_type: str, headers: Mapping[str, str] | None) -> dict[str, str]:
        own = {REQUEST_ID_HEADER: self.request_id, "Content-Type": content_type, **self._ignored}
        return {**own, **self.answer_headers, **(headers or {})}

    async def _body(self, limit: int) -> bytes:
        too_large = PayloadTooLarge(f"the body must be at most {limit} bytes (max_request_size)")
        if (self.request.content_length or 0) > limit:
            raise too_large
        body = bytearray()
        try:
            async for chunk in self.request.content.iter_any():
                body += chunk
                if len(body) > limit:
                    raise too_large
                if is_compressed(self.request):  # its chunks are all there, so that the loop would not wait for any
                    await asyncio.sleep(0)
        except web.RequestPayloadError as error:  # not compressed as its headers say
            reason = " ".join(str(error).removeprefix("400, message:").split())
            raise InvalidPayload(f"the body cannot be read: {reason}") from error
        return bytes(body)

    async def _begin(self, formatter: Writer, stream: Stream) -> Stream:
        headers = self._headers(formatter.content_type, {"Cache-Control": "no-cache", **formatter.headers})
        stream.headers.update(self.framing.headers(headers))
        await stream.begin(self.request)
        return stream

    def _error_answer(self, error: LmiError) -> Answer:
        formatter = self.formatter if isinstance(self.formatter, OutputFormatter) else None
        try:
            answer = self.handler.error(error, self.model, formatter)
            if (
                self.formatter is None
                or not self.formatter.errors_are_events
                or not isinstance(error, WHILE_GENERATING)
            ):
                return answer
            return replace(answer, content_type=self.formatter.content_type, body=joined(self.formatter.error(error)))
        except (Exception, SystemExit):  # a user's formatter may fail here too
            logger.exception("request %s: the formatter could not write the error", self.request_id)
            return self.handler.error(error, self.model, None)

    def _retry_after(self, error: LmiError) -> dict[str, str]:
        return {"Retry-After": RETRY_AFTER_SECONDS} if isinstance(error, Overloaded) else {}


def request_id(request: web.Request) -> str:
    """Return the client's request id if it is printable ASCII, cut to its maximal length; otherwise a new one."""
    given = request.headers.get(REQUEST_ID_HEADER) or request.headers.get(INFERENCE_ID_HEADER) or ""
    given = given[:LONGEST_REQUEST_ID]
    return given if given and given.isascii() and given.isprintable() else secrets.token_hex(16)
