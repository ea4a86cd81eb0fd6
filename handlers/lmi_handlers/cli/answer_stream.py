"""A streamed answer of OpenAI's API, for display in a terminal."""

import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from lmi_core.calls.answer import IGNORED_HEADER

DATA = b"data: "
DONE = b"[DONE]"
FAILED = 400
UNAUTHORIZED = 401
KEY_HINT = "LMI_API_KEY in the environment gives one, and --api-key-env names another variable"

JsonObject = dict[str, Any]


class AnswerFailed(Exception):
    """A failed request: there is no server, it refused the request, or its answer was cut off."""


@dataclass(slots=True)
class Statistics:
    """The number of tokens in an answer, and how fast they arrived."""

    begun: float = field(default_factory=time.perf_counter)
    first: float | None = None  # seconds until the first text
    tokens: int | None = None  # None where the server does not tell
    ignored: str = ""  # the fields that the server does not know

    @property
    def line(self) -> str:
        """The statistics as text."""
        seconds = time.perf_counter() - self.begun
        if self.first is None or self.tokens is None:
            return f"{seconds:.2f} s"
        decoding = seconds - self.first
        speed = f", {(self.tokens - 1) / decoding:.1f} tokens/s" if self.tokens > 1 and decoding > 0 else ""
        return f"{self.tokens} tokens{speed}, the first after {self.first:.2f} s"


async def stream_chunks(
    client: aiohttp.ClientSession, path: str, payload: JsonObject, statistics: Statistics
) -> AsyncIterator[JsonObject]:
    """Yield the choice of each chunk of a stream. Raise AnswerFailed if there is an error instead."""
    body = {**payload, "stream": True, "stream_options": {"include_usage": True}}
    try:
        async with client.post(path, json=body) as response:
            if response.status >= FAILED:
                message = _message(await response.read()) or f"status {response.status}"
                raise AnswerFailed(f"{message}. {KEY_HINT}" if response.status == UNAUTHORIZED else message)
            statistics.ignored = response.headers.get(IGNORED_HEADER, "")
            async for line in response.content:
                if not line.startswith(DATA) or (data := line.removeprefix(DATA).strip()) == DONE:
                    continue
                chunk = orjson.loads(data)
                if "error" in chunk:
                    raise AnswerFailed(_message(data))
                if usage := chunk.get("usage"):
                    statistics.tokens = usage["completion_tokens"]
                for choice in chunk.get("choices", ()):
                    if statistics.first is None:
                        statistics.first = time.perf_counter() - statistics.begun
                    yield choice
    except aiohttp.ClientSSLError as error:
        raise AnswerFailed(f"the server does not answer: {error}") from None
    except aiohttp.ClientConnectorError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error.os_error
        raise AnswerFailed(f"no server answers at {error.host}:{error.port}: {reason}") from None
    except aiohttp.ClientConnectionError as error:
        raise AnswerFailed(f"the server does not answer: {error}") from None
    except (aiohttp.ClientPayloadError, orjson.JSONDecodeError) as error:
        raise AnswerFailed(f"the answer was interrupted: {error}") from None


def _message(body: bytes) -> str:
    """Return the message of an error in OpenAI's form, or the start of another body."""
    try:
        error = orjson.loads(body)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return body.decode(errors="backslashreplace")[:200].strip()
