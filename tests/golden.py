"""Golden transcripts: the bytes of a request and of its answer, one file each, replayed against the scripted backend.

`LMI_WRITE_GOLDEN=1` writes them anew. The chunks of a streamed answer are kept, for each is one write of the server.
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
CONTEXT = 12  # tokens that fit, here
VOLATILE = (
    (rb"(?m)^(Date|Server): [^\r]*", rb"\1: *"),
    (rb'"created":\d+', b'"created":0'),
    (rb'"id":"(\w+)-[0-9a-f]{32}"', rb'"id":"\1-*"'),
)
FORMS = ("whole", "stream")

# From the prompt, LMI's parameters and the form to a path and a payload.
Dialect = Callable[[str, dict[str, Any], str], tuple[str, object]]


@dataclass(frozen=True)
class Case:
    """What is asked for, and what the backend says."""

    parameters: dict[str, Any] = field(default_factory=dict)
    prompt: str = "What is Deep Learning?"
    said: str = "Deep Learning is a field."
    client_leaves: bool = False  # once everything was said


CASES = {
    "length": Case({"max_new_tokens": 2}),
    "eos": Case(),
    "stop_sequence": Case({"stop_sequences": [" is a"]}),
    "client_abort": Case(said="Deep Learning", client_leaves=True),
    "long_prompt": Case(prompt="word " * CONTEXT),
    "bad_parameter": Case({"temperature": -1}),
}


async def replay(server: RunningServer, name: str, dialect: Dialect, form: str, case_name: str) -> None:
    """Fails unless the answer to the recorded request is the recorded one."""
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
    """What came, volatile parts replaced, until the server closed or, for a held script, until it was all there."""
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
    """What the server has written and was not read yet; all of it was sent before, so that a moment is enough."""
    try:
        return await asyncio.wait_for(reader.read(65536), 0.1)
    except TimeoutError:
        return b""


def _normalised(data: bytes | bytearray) -> bytes:
    text = bytes(data)
    for pattern, replacement in VOLATILE:
        text = re.sub(pattern, replacement, text)
    return text
