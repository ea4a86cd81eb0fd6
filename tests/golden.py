"""Golden transcripts, files with the bytes of a request and its answer, replayed against the scripted backend.

`LMI_WRITE_GOLDEN=1` rewrites them. They keep the chunks of a streamed answer, each one write of the server.
"""

import asyncio
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from lmi_plugins.backends.scripted import Script
from tests.conftest import RunningServer

FOLDER = Path(__file__).with_name("golden")
SEPARATOR = b"\r\n======== answer ========\r\n"
CONTEXT = 12  # the number of tokens that fit
VOLATILE = (
    (rb"(?m)^(Date|Server): [^\r]*", rb"\1: *"),
    (rb'"created":( ?)\d+', rb'"created":\g<1>0'),
    (rb'"id":"(\w+)-[0-9a-f]{32}"', rb'"id":"\1-*"'),
    (rb'"fp_[0-9a-f]{10}"', b'"fp_*"'),
    (rb"Content-Length: \d+(?=[^{]*\{[^\n]*_duration)", b"Content-Length: *"),  # as durations differ in length
    (rb"[0-9a-f]+\r\n(?=\{[^\n]*_duration)", b"*\r\n"),  # the same for the size of a chunk
    (rb'"(\w+_duration)":\d+', rb'"\1":0'),
    (rb'"created_at":"[^"]+"', b'"created_at":"*"'),
    (rb'"((?:item_)?id)":"([a-z]+)_[0-9a-f]{32}"', rb'"\1":"\2_*"'),
    (rb'"(created|completed)_at":\d+', rb'"\1_at":0'),
)
FORMS = ("whole", "stream")

# Maps the prompt, LMI's parameters and the form to a path and a payload.
Dialect = Callable[[str, dict[str, Any], str], tuple[str, object]]


@dataclass(frozen=True)
class Case:
    """A request, and the scripted answer of the backend."""

    parameters: dict[str, Any] = field(default_factory=dict)
    prompt: str = "What is Deep Learning?"
    said: str = "Deep Learning is a field."
    client_leaves: bool = False  # after the whole text was yielded


CASES = {
    "length": Case({"max_new_tokens": 2}),
    "eos": Case(),
    "stop_sequence": Case({"stop_sequences": [" is a"]}),
    "client_abort": Case(said="Deep Learning", client_leaves=True),
    "long_prompt": Case(prompt="word " * CONTEXT),
    "bad_parameter": Case({"temperature": -1}),
}


async def replay(server: RunningServer, name: str, dialect: Dialect, form: str, case_name: str) -> None:
    """Assert that the recorded request gets the recorded answer."""
    path = FOLDER / f"{name}_{form}_{case_name}.http"
    case = CASES[case_name]
    request = _request(*dialect(case.prompt, case.parameters, form))
    writes = "LMI_WRITE_GOLDEN" in os.environ
    recorded = b"" if writes else path.read_bytes()
    script = Script(case.said, hold=case.client_leaves)
    server.scripted.max_length = CONTEXT
    server.scripted.enqueue(script)
    answer = await _exchange(server, request, script, recorded.partition(SEPARATOR)[2])
    if writes:
        path.write_bytes(request + SEPARATOR + answer)
    else:
        assert request + SEPARATOR + answer == recorded


def _request(path: str, payload: object) -> bytes:
    body = orjson.dumps(payload)
    head = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "X-Request-Id: golden",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


async def _exchange(server: RunningServer, request: bytes, script: Script, expected: bytes) -> bytes:
    """Return the answer with volatile parts replaced, up to the end or, for a held script, its expected length."""
    reader, writer = await asyncio.open_connection(server.server.host, server.server.port)
    received = bytearray()
    try:
        async with asyncio.timeout(60):
            writer.write(request)
            if script.hold:
                await script.started.wait()
                while len(_normalised(received)) < len(expected):
                    received += await reader.read(65536)
                received += await _rest(reader)
            else:
                received += await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    if script.hold:
        await script.closed.wait()
    return _normalised(received)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """Return what the server has already sent and the reader has not read, which arrives within a moment."""
    try:
        return await asyncio.wait_for(reader.read(65536), 0.1)
    except TimeoutError:
        return b""


def _normalised(data: bytes | bytearray) -> bytes:
    text = bytes(data)
    for pattern, replacement in VOLATILE:
        text = re.sub(pattern, replacement, text)
    return text
