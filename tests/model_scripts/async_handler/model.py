import asyncio

from djl_python import Input, Output
from djl_python.async_utils import create_non_stream_output, create_stream_chunk_output, handle_streaming_response

gate = None
closed = asyncio.Event()


async def tokens(count):
    try:
        for i in range(count):
            await asyncio.sleep(0)
            yield f"token {i}"
        if count == 99:
            await asyncio.Event().wait()
    finally:
        closed.set()


def as_chunk(chunk, **kwargs):
    return {"text": chunk}, False


async def handle(inputs: Input):
    global gate
    if gate is None:
        gate = asyncio.Event()
    if inputs.is_empty():
        return None
    data = inputs.get_batches()[0].get_as_json()
    if data.get("wait"):
        await gate.wait()
    if data.get("open"):
        gate.set()
    if data.get("raise"):
        raise ValueError("not today")
    if data.get("wait_until_closed"):
        await closed.wait()
        return create_non_stream_output({"said": "closed"})
    if data.get("stream"):
        return handle_streaming_response(tokens(data["stream"]), as_chunk)
    if data.get("failing_stream"):
        return create_stream_chunk_output("", True, error="it broke", code=424)
    return create_non_stream_output({"said": data["text"]}, properties={"X-Session": "s1"})
