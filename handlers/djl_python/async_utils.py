"""Outputs of asynchronous model functions."""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from typing import Any

from lmi_core.script.djl_names.outputs import Output

__all__ = ["create_non_stream_output", "create_stream_chunk_output", "handle_streaming_response"]

logger = logging.getLogger(__name__)

Data = str | dict[str, Any]


def create_non_stream_output(
    data: Data, properties: Mapping[str, str] | None = None, error: str | None = None, code: int | None = None
) -> Output:
    """Return a whole answer of JSON."""
    return _output(data, True, "application/json", properties, error, code)


def create_stream_chunk_output(
    data: Data, last_chunk: bool, error: str | None = None, code: int | None = None
) -> Output:
    """Return a line of a streamed answer."""
    return _output(data, last_chunk, "application/jsonlines", None, error, code)


async def handle_streaming_response(
    response: AsyncIterable[Any],
    stream_output_formatter: Callable[..., Any],
    accumulate_chunks: bool = False,
    **kwargs: Any,
) -> AsyncGenerator[Output, None]:
    """Yield a line for each chunk; the formatter returns `(data, last)`, with the history if it keeps one."""
    history: list[Any] = []
    async for chunk in response:
        try:
            if accumulate_chunks:
                data, last, history = stream_output_formatter(chunk, history=history, **kwargs)
            else:
                data, last = stream_output_formatter(chunk, **kwargs)
        except Exception as error:  # a user's formatter may raise anything
            logger.exception("the stream's output formatter raised")
            yield create_stream_chunk_output("", True, error=str(error), code=424)
            return
        yield create_stream_chunk_output(data, last)
        if last:
            return


def _output(
    data: Data,
    last: bool,
    content_type: str,
    properties: Mapping[str, str] | None,
    error: str | None,
    code: int | None,
) -> Output:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    if error:
        text = json.dumps({"error": error, "code": code or 424})
    fields = {"data": f"{text}\n", "last": last, "error": error, "code": code, "properties": properties}
    output = Output().add_property("Content-Type", content_type)
    return output.add(Output.binary_encode(fields))
