"""Conversion of a model function's results to messages for the server."""

import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from lmi_core.errors import LmiError
from lmi_core.formatter import AnswerWriter
from lmi_core.host.out_of_memory import is_out_of_memory
from lmi_core.script.djl_names.outputs import Output
from lmi_core.script.formatters.frames import frame
from lmi_core.script.function.protocol import OUT_OF_MEMORY, Chunk, End, Head, Reply

logger = logging.getLogger(__name__)

FAILED = 424
FAILURES = 300  # this status and those above mean that the function failed
NO_CONTENT = 204
OWN_HEADERS = ("connection", "content-length", "content-type", "date", "server", "transfer-encoding")


class StreamErrors(AnswerWriter):
    """A writer of errors alone, for the end of a model function's stream."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.content_type = headers["Content-Type"]

    def error(self, error: LmiError) -> bytes:
        return frame({"error": error.message, "code": FAILED}, self.content_type)


async def replies(call_id: int, result: Any) -> AsyncGenerator[Reply, None]:
    """Yield the messages for a function's result. Raise whatever the function's own code raises, also in a stream."""
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, AsyncIterable | Iterator):
        async for reply in _stream_of_outputs(call_id, result):
            yield reply
        return
    output = answer_of(result)
    yield head_of(call_id, output)
    if output.stream_content is not None:
        async with aclosing(_items(output.stream_content)) as items:
            async for item in items:
                yield Chunk(call_id, output.stream_chunk(item))
    yield End(call_id)
    finalize(output)


def answer_of(result: Any) -> Output:
    """Return the function's result as an Output, with status 204 for None and an error for any other type."""
    if isinstance(result, Output):
        return result
    if result is None:
        return Output(NO_CONTENT, "No content")
    return Output().error(f"the model function must return an Output. Returned: {type(result).__name__}")


def failure(call_id: int, error: BaseException, words: str, begun: bool, note: str = "") -> list[Reply]:
    """Return the messages that end a call whose function raised; status 507 if memory ran out before the answer."""
    message = sendable(f"{words} {type(error).__name__}: {error}{note}")
    if begun or not is_out_of_memory(error):
        return [End(call_id, message)]
    return [head_of(call_id, Output().error(message, OUT_OF_MEMORY, "out of memory")), End(call_id)]


async def _stream_of_outputs(call_id: int, outputs: Any) -> AsyncGenerator[Reply, None]:
    """Yield the messages for a stream of Outputs, one for each chunk; the first has the status and the headers."""
    begun = False
    async with aclosing(_items(outputs)) as items:
        async for item in items:
            output = item if isinstance(item, Output) else Output().add(item)
            if not begun:
                begun = True
                headers = headers_of(output.properties, output.content_type)
                yield Head(call_id, output.code, headers, [], streams=True)
            for value in output.content.values:
                yield Chunk(call_id, bytes(value))
    if not begun:
        yield head_of(call_id, Output(NO_CONTENT, "No content"))
    yield End(call_id)


def head_of(call_id: int, output: Output) -> Head:
    """Return the message with an answer's status, headers and contents; a stream's contents follow in chunks."""
    content = [(key, bytes(value)) for key, value in zip(output.content.keys, output.content.values, strict=True)]
    headers = headers_of(output.properties, output.content_type)
    return Head(call_id, output.code, headers, content, streams=output.stream_content is not None)


def headers_of(properties: Mapping[str, Any], content_type: str) -> dict[str, str]:
    """Return an answer's properties as headers, with `content_type` unless they set a content type.

    Model functions copy the request's properties into the answer; headers that HTTP itself sets are left out.
    """
    given = {str(name): sendable(str(value)) for name, value in properties.items()}
    headers = {name: value for name, value in given.items() if name.lower() not in OWN_HEADERS}
    kinds = [value for name, value in given.items() if name.lower() == "content-type"]
    return headers | {"Content-Type": kinds[-1] if kinds else content_type}


def sendable(text: str) -> str:
    """Return the text with lone surrogates escaped; messages and headers may quote any bytes."""
    return text.encode(errors="backslashreplace").decode()


async def _items(items: Any) -> AsyncGenerator[Any, None]:
    if isinstance(items, AsyncIterable):
        try:
            async for item in items:
                yield item
        finally:
            if hasattr(items, "aclose"):
                await items.aclose()
        return
    try:
        for item in items:
            yield item
    finally:
        if hasattr(items, "close"):
            items.close()


def finalize(output: Output) -> None:
    """Call the function registered to run after the answer is sent. Log its exceptions."""
    try:
        output.execute_finalize()
    except (Exception, SystemExit):  # a user's function may raise anything; the answer is still sent
        logger.exception("the output's finalizer raised")
