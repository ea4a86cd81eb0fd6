"""One HTTP request and its response."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from math import ceil

from aiohttp import HttpVersion11, hdrs, web

from lmi_core.calls.access import Reach
from lmi_core.calls.answer import IGNORED_HEADER
from lmi_core.errors import (
    FormatterFailed,
    GenerationFailed,
    GenerationTimeout,
    LmiError,
    Overloaded,
    RequestAborted,
    Unauthorized,
    UnsupportedEncoding,
)
from lmi_core.formatter import AnswerWriter, OutputFormatter, join_events
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.tensors import Tensor
from lmi_core.handler import Answer, Call, Framing, Handler, Route
from lmi_core.host.off_loop import LONG_TEXT, WRITING
from lmi_core.inference import ResponseWriter
from lmi_core.metrics.recent_errors import without_values
from lmi_core.script.function.answers import StreamErrors
from lmi_core.script.function.protocol import Chunk, Head
from lmi_core.serving.backend_failures import writing_failure
from lmi_core.serving.model import Model
from lmi_core.tolerance import ignored_header, names_of
from lmi_handlers.base.model_exchange import ModelExchange
from lmi_handlers.fields.request_headers import (
    MODEL_NAME,
    MODEL_VERSION,
    REQUEST_ID_HEADER,
    find_outside,
    read_attributes,
    request_id,
)
from lmi_handlers.http.bodies.compressed import ENCODINGS
from lmi_handlers.http.bodies.reading import read_body
from lmi_handlers.telemetry.refusals import refusals_of

logger = logging.getLogger(__name__)
_refusals = refusals_of(logger)

PIECE = 1 << 18  # bytes of a body that is written at once
LONG_ANSWER = 1000  # tokens and top tokens, which take a few milliseconds to write
FAILED = 400  # this status and those above are errors
WHILE_GENERATING = (GenerationFailed, GenerationTimeout, RequestAborted)  # errors after the start of a generation
CHUNK, LAST_CHUNK = b"%x\r\n%b\r\n", b"0\r\n\r\n"
EVENT_STREAM = "text/event-stream"  # the content type of server-sent events
KEEP_ALIVE = b": keep-alive\n\n"  # a comment of server-sent events, which clients skip


class Stream(web.StreamResponse):
    """A streamed response with one HTTP chunk per event, as clients expect, and one write for events sent together."""

    # aiohttp sets both for complete responses and web sockets, and has no public interface for them. A test checks the
    # bytes. https://github.com/aio-libs/aiohttp/blob/master/aiohttp/web_response.py
    _send_headers_immediately = False  # send headers with the first event, in one packet
    _length_check = False  # this class writes the chunks itself

    def __init__(self, framing: Framing, status: int = 200, *, headers_first: bool = False) -> None:
        super().__init__(status=status)
        self._send_headers_immediately = headers_first
        self._frame = None if type(framing).frame is Framing.frame else framing.frame
        self._in_chunks = True
        self.size = 0  # bytes written so far; aiohttp's `body_length` is 0 until the end

    async def begin(self, request: web.BaseRequest) -> None:
        self._in_chunks = request.version >= HttpVersion11
        if self._in_chunks:
            self.headers[hdrs.TRANSFER_ENCODING] = "chunked"
        else:
            self.force_close()
        await self.prepare(request)

    def send(self, events: bytes | list[bytes]) -> Coroutine[None, None, None]:
        """Send an event, or several, each in the frame that the route requires."""
        return self.write(self._encode(events))

    def end(self, events: bytes | list[bytes] = b"", unframed: bytes = b"") -> Coroutine[None, None, None]:
        """Send the last events, if any, and the end of the response."""
        data = self._encode(events)
        if unframed:
            data += CHUNK % (len(unframed), unframed) if self._in_chunks else unframed
        return self.write_eof(data + (LAST_CHUNK if self._in_chunks else b""))

    def _encode(self, events: bytes | list[bytes]) -> bytes:
        data = b""
        for event in [events] if isinstance(events, bytes) else events:
            framed = event if self._frame is None else self._frame(event)
            if framed:
                data += CHUNK % (len(framed), framed) if self._in_chunks else framed
        self.size += len(data)
        return data


class Exchange(ModelExchange[web.StreamResponse]):
    """One request over HTTP: reads the call, writes the response."""

    def __init__(self, handler: Handler, route: Route, request: web.Request) -> None:
        super().__init__(handler, request.headers, request_id(request.headers), request.remote or "")
        self.payloads = route.payloads
        self.framing = route.framing
        self.compresses = route.compresses
        self.request = request
        self.reach = Reach()
        self._ignored: dict[str, str] = {}  # the header that lists ignored parameters
        self._call: Call | None = None
        self._response: web.Response | Stream | None = None

    def model_name(self, only: Model | None) -> str | None:
        """Return the model in the path, in DJLServing's parameter, or in SageMaker's header.

        The header chooses among several models; one that has always been alone ignores other names there.
        """
        path, query, headers = self.request.match_info, self.request.query, self.request.headers
        name = self.handler.model_name(path, headers)
        if named := (name and self.handler.model_name(path, {})) or find_outside(MODEL_NAME, query, headers):
            return named
        return name if only is None or not name or name.partition(":")[0] in only.names else None

    def model_version(self) -> str | None:
        return self.request.match_info.get("version") or find_outside(
            MODEL_VERSION, self.request.query, self.request.headers
        )

    @property
    def is_received(self) -> bool:
        """Whether the whole body has arrived."""
        return self.request.content.is_eof()

    async def call(self, limit: int) -> Call:
        """Return the call, reading the body on first use.

        Raise PayloadTooLarge if the body is longer than `limit` bytes, and the other errors of `read_body`.
        """
        if self._call is None:
            request = self.request
            self._call = Call(
                path_parameters=request.match_info,
                headers=request.headers,
                body=await read_body(request, limit),
                request_id=self.request_id,
                path=request.path.removesuffix("/") or "/",  # without the optional trailing slash
                query=request.query,
                peer=request.remote or "",
                key=self.key,
                attributes=dict(read_attributes(request.headers)),
                reach=self.reach,
            )
        return self._call

    def ignore(self, model: Model, names: Collection[str]) -> None:
        """List ignored parameters in a header of the response, whether it succeeds or fails, and log each once."""
        parameters = model.backend.parameters_type
        model.ignored.report(names, lambda: names_of([*self.payloads, parameters]) | {"adapters"})
        self._list(names)

    def _list(self, names: Collection[str]) -> None:
        self._ignored = {IGNORED_HEADER: ignored_header(names)}

    def write(self, output: GenerationOutput, formatter: OutputFormatter) -> Coroutine[None, None, None]:
        """Format and send the latest step; an answer that is complete at its first write gets a Content-Length."""
        whole = output.finished
        try:
            if whole and self._response is None and _is_long(output):
                return self._write_beside(output, formatter)
            data = formatter.format(output)
            if isinstance(self._response, Stream):
                if type(data) is not bytes:
                    data = check_result(formatter, data)
                return self._response.end(data) if whole else self._response.send(data)
            return self._put_first(check_result(formatter, data), formatter, whole=whole)
        except LmiError:
            raise
        except (Exception, SystemExit) as error:  # a user's formatter may raise anything
            raise self._writing_failure(formatter, error) from error

    async def _write_beside(self, output: GenerationOutput, formatter: OutputFormatter) -> None:
        """Format a long answer in another thread, and send it."""
        try:
            data = check_result(formatter, await WRITING.run(partial(formatter.format, output)))
        except LmiError:
            raise
        except (Exception, SystemExit) as error:
            raise self._writing_failure(formatter, error) from error
        await self._put(data, formatter, whole=True)

    def _writing_failure(self, formatter: OutputFormatter, error: BaseException) -> LmiError:
        logger.error("request %s: an output formatter raised", self.request_id, exc_info=error)
        return writing_failure(formatter, error)

    async def respond(self, response: Mapping[str, Tensor], writer: ResponseWriter) -> None:
        """Encode and send one of a backend's responses."""
        await self._put(writer.write(response), writer, whole=not writer.streams)

    async def answer(self, answer: Answer) -> None:
        """Send a whole answer in the route's frame."""
        self._response = await self._send_framed(answer, {})

    async def relay(self, reply: Head | Chunk) -> None:
        """Send a part of the model function's answer; errors in its stream have the stream's content type."""
        if isinstance(reply, Chunk):
            assert isinstance(self._response, Stream), "the head must be sent first"
            await self._response.send(reply.data)
        elif reply.streams:
            self.formatter = StreamErrors(reply.headers)
            self._response = await self._begin(self.formatter, Stream(self.framing, reply.code, headers_first=True))
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
            # aiohttp writes a file no faster than its client reads
            body=answer.body if len(answer.body) <= PIECE else BytesIO(answer.body),
            headers=self._headers(answer.content_type, {**answer.headers, **(headers or {})}),
        )
        if self.compresses and answer.status < FAILED:
            response.enable_compression()
        await response.prepare(self.request)
        return response

    async def fail(self, error: LmiError) -> web.StreamResponse:
        """Send an error status or, after the start of a stream, the error in the dialect's form and the stream's
        end.
        """
        if not isinstance(error, Overloaded) or _refusals.may_log():
            logger.info("request %s failed: %s: %s", self.request_id, error.kind, without_values(error.message))
            logger.debug("request %s failed: %s", self.request_id, " ".join(error.message.splitlines()))
        if self._response is None:
            answer = self.handler.identified(self._error_answer(error), self.request_id)
            return await self.send(answer, _advice(error))
        if isinstance(self._response, Stream):
            words = b"" if self.formatter is None else self._last_words(self.formatter, error)
            await self._response.end(words, self.framing.failure(error))
        return self._response

    def _put(self, data: bytes | list[bytes], writer: AnswerWriter, *, whole: bool) -> Coroutine[None, None, None]:
        if isinstance(self._response, Stream):
            return self._response.end(data) if whole else self._response.send(data)
        return self._put_first(data, writer, whole=whole)

    async def _put_first(self, data: bytes | list[bytes], writer: AnswerWriter, *, whole: bool) -> None:
        if whole and isinstance(data, bytes):
            self._response = await self._send_framed(Answer(200, writer.content_type, data), writer.headers)
        elif data:
            self._response = await self._begin(writer, Stream(self.framing))
            await self._put(data, writer, whole=whole)

    def _last_words(self, formatter: AnswerWriter, error: LmiError) -> bytes | list[bytes]:
        try:
            return check_result(formatter, formatter.error(error))
        except (Exception, SystemExit):  # a user's formatter may raise anything
            logger.exception("request %s: the formatter could not write the error", self.request_id)
            return b""

    async def _send_framed(self, answer: Answer, headers: Mapping[str, str]) -> web.Response:
        if answer.status >= FAILED:
            return await self.send(answer, headers)
        framed = self.framing.headers(self._headers(answer.content_type, headers))
        return await self.send(replace(answer, body=self.framing.frame(answer.body)), framed)

    def _headers(self, content_type: str, headers: Mapping[str, str] | None) -> dict[str, str]:
        own = {REQUEST_ID_HEADER: self.request_id, "Content-Type": content_type, **self._ignored}
        return {**own, **self.usage.headers, **self.answer_headers, **(headers or {})}

    def kept_alive(self, writer: AnswerWriter, seconds: float) -> AbstractAsyncContextManager[None]:
        """Send a comment whenever a stream of server-sent events has been silent for that many seconds; 0 disables
        this. The status 200 is sent before the first one, so later errors are part of the stream.
        """
        if not seconds or not writer.is_settled or writer.content_type.partition(";")[0] != EVENT_STREAM:
            return nullcontext()
        return self._commenting(writer, seconds)

    @asynccontextmanager
    async def _commenting(self, writer: AnswerWriter, seconds: float) -> AsyncIterator[None]:
        task = asyncio.create_task(self._send_comments(writer, seconds))
        try:
            yield
        finally:
            task.cancel()

    async def _send_comments(self, writer: AnswerWriter, seconds: float) -> None:
        """Check from time to time whether anything was sent, which costs nothing per token."""
        seen = 0
        with suppress(ConnectionError):  # the client has disconnected, which ends the request
            while True:
                await asyncio.sleep(seconds)
                if self._response is None:
                    self._response = await self._begin(writer, Stream(self.framing))
                assert isinstance(self._response, Stream), "a whole answer cannot be streamed"
                if self._response.size == seen:
                    await self._response.send(KEEP_ALIVE)
                seen = self._response.size

    async def _begin(self, formatter: AnswerWriter, stream: Stream) -> Stream:
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
            words = join_events(self.formatter.error(error))  # first, because it may set the content type
            return replace(answer, content_type=self.formatter.content_type, body=words)
        except (Exception, SystemExit):  # a user's formatter may raise anything
            logger.exception("request %s: the formatter could not write the error", self.request_id)
            return self.handler.error(error, self.model, None)


def check_result(formatter: AnswerWriter, data: object) -> bytes | list[bytes]:
    """Return a result of the formatter. Raise FormatterFailed unless it is bytes or a list of bytes."""
    # Fast, because this runs for every token
    if isinstance(data, bytes) or (isinstance(data, list) and {*map(type, data)} <= {bytes}):
        return data
    wrong = next(each for each in data if type(each) is not bytes) if isinstance(data, list) else data
    raise FormatterFailed(
        f"the output formatter {type(formatter).__name__} must return bytes, as text.encode() does, or a list of them. "
        f"Returned: {type(wrong).__name__}"
    )


def _advice(error: LmiError) -> dict[str, str]:
    """Return the headers with advice for the client."""
    if error.retry_after is not None:
        return {"Retry-After": str(max(1, ceil(error.retry_after)))}
    if isinstance(error, Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    return {"Accept-Encoding": ENCODINGS} if isinstance(error, UnsupportedEncoding) else {}


def _is_long(output: GenerationOutput) -> bool:
    """Return whether an answer takes milliseconds to write, for example one with many log probabilities."""
    size = sum([len(sequence.tokens) for sequence in output.sequences])
    prompt_size = sum([len(tokens) for tokens in output.prefill if tokens is not None])
    top_tokens = 1 + output.parameters.num_top_tokens
    return (
        size * top_tokens + prompt_size * (1 + abs(output.parameters.num_prompt_top_tokens)) > LONG_ANSWER
        or sum([len(sequence.text) for sequence in output.sequences]) > LONG_TEXT
    )
