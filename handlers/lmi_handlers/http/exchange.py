"""One HTTP request, and what has been sent of its answer."""

import logging
import secrets
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import replace

from aiohttp import web

from lmi_core.errors import FormatterFailed, InvalidPayload, LmiError, Overloaded, PayloadTooLarge
from lmi_core.formatter import OutputFormatter
from lmi_core.generation import GenerationOutput
from lmi_core.handler import Answer, Call, Handler, Route
from lmi_core.inference import ResponseWriter
from lmi_core.payloads.tolerance import ignored_header, names_of
from lmi_core.script.function.answers import StreamErrors
from lmi_core.script.function.protocol import Chunk, Head
from lmi_core.serving.model import Model
from lmi_core.tensors import Tensor
from lmi_handlers.http.attributes import named_attributes
from lmi_handlers.http.stream import Stream

logger = logging.getLogger(__name__)

REQUEST_ID_HEADER = "x-request-id"
IGNORED_HEADER = "X-Lmi-Ignored-Parameters"
LONGEST_REQUEST_ID = 128
RETRY_AFTER_SECONDS = "1"
FAILED = 400  # and statuses above

Writer = OutputFormatter | ResponseWriter


class Exchange:
    """Reads the call and writes the answer; `model` and `formatter` are set once they are known."""

    def __init__(self, handler: Handler, route: Route, request: web.Request) -> None:
        self.handler = handler
        self.payloads = route.payloads
        self.framing = route.framing
        self.compresses = route.compresses
        self.request = request
        self.request_id = _request_id(request)
        self.model: Model | None = None
        self.formatter: Writer | None = None
        self._ignored: dict[str, str] = {}  # the header, once there is something to list
        self._call: Call | None = None
        self._response: web.Response | Stream | None = None

    async def call(self, limit: int) -> Call:
        """Return the request, read the first time that it is asked for.

        Raise PayloadTooLarge as soon as more than `limit` bytes of a body are announced or have come.
        """
        if self._call is None:
            request = self.request
            self._call = Call(
                path_parameters=request.match_info,
                headers=request.headers,
                body=await self._body(limit),
                request_id=self.request_id,
                path=request.path,
                query=request.query,
                peer=request.remote or "",
                attributes=dict(named_attributes(request.headers)),
            )
        return self._call

    def ignore(self, model: Model, names: Collection[str]) -> None:
        """List parameters that were dropped in a header of the answer, whatever that will be, and log each once."""
        if names:
            parameters = model.backend.parameters_type
            model.ignored.report(names, lambda: names_of([*self.payloads, parameters]) | {"adapters"})
            self._list(names)

    def _list(self, names: Collection[str]) -> None:
        self._ignored = {IGNORED_HEADER: ignored_header(names)}

    def write(self, output: GenerationOutput, formatter: OutputFormatter) -> Coroutine[None, None, None]:
        """Send what the formatter makes of a step. An answer that is whole at the first write has a Content-Length."""
        try:
            data = formatter.format(output)
        except LmiError:
            raise
        except (Exception, SystemExit) as error:  # whatever a formatter of the user's raises
            logger.exception("request %s: an output formatter raised", self.request_id)
            raise FormatterFailed(f"the output formatter raised {type(error).__name__}: {error}") from error
        return self._put(data, formatter, whole=output.finished)

    async def respond(self, response: Mapping[str, Tensor], writer: ResponseWriter) -> None:
        """Send what the writer makes of a backend's response."""
        await self._put(writer.write(response), writer, whole=not writer.streams)

    async def relay(self, reply: Head | Chunk) -> None:
        """Send what the model function answers. A stream's errors are objects of its own content type."""
        if isinstance(reply, Chunk):
            assert isinstance(self._response, Stream), "the head comes first"
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
        """Send a whole answer, with its Content-Length."""
        if answer.ignored:
            self._list(answer.ignored)
        response = web.Response(
            status=answer.status,
            body=answer.body,
            headers=self._headers(answer.content_type, headers),
        )
        if self.compresses and answer.status < FAILED:
            response.enable_compression()
        await response.prepare(self.request)
        return response

    async def fail(self, error: LmiError) -> web.StreamResponse:
        """Send an HTTP status while nothing was sent; after that, the error in the dialect's stream, and its end."""
        message = " ".join(error.message.splitlines())
        logger.info("request %s failed: %s: %s", self.request_id, error.kind, message)
        if self._response is None:
            return await self.send(self._error_answer(error), self._retry_after(error))
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
        except (Exception, SystemExit):  # a formatter of the user's that raises on errors too
            logger.exception("request %s: the formatter could not write the error", self.request_id)
            return b""

    def _frames(self, data: bytes | list[bytes]) -> list[bytes]:
        """Return a frame for each event."""
        frame = self.framing.frame
        return [frame(data)] if isinstance(data, bytes) else [frame(event) for event in data]

    async def _send_framed(self, answer: Answer, headers: Mapping[str, str]) -> web.Response:
        if answer.status >= FAILED:
            return await self.send(answer, headers)
        framed = self.framing.headers(self._headers(answer.content_type, headers))
        return await self.send(replace(answer, body=self.framing.frame(answer.body)), framed)

    def _headers(self, content_type: str, headers: Mapping[str, str] | None) -> dict[str, str]:
        return {REQUEST_ID_HEADER: self.request_id, "Content-Type": content_type, **self._ignored, **(headers or {})}

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
        except web.RequestPayloadError as error:  # compressed in a way that its headers do not say
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
            return self.handler.error(error, self.model, formatter)
        except (Exception, SystemExit):  # a formatter of the user's that raises on errors too
            logger.exception("request %s: the formatter could not write the error", self.request_id)
            return self.handler.error(error, self.model, None)

    def _retry_after(self, error: LmiError) -> dict[str, str]:
        return {"Retry-After": RETRY_AFTER_SECONDS} if isinstance(error, Overloaded) else {}


def _request_id(request: web.Request) -> str:
    """Return the client's id, where it can be logged and sent as it is, or a new one."""
    given = request.headers.get(REQUEST_ID_HEADER, "")[:LONGEST_REQUEST_ID]
    return given if given and given.isascii() and given.isprintable() else secrets.token_hex(16)
