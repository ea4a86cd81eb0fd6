"""Streams from a server, from a process of its own: `python -m tests.benchmarks.load_client` and, line by line, loads.

Each line of its input is a Load as JSON; each answer a Result. It reads bytes and parses nothing while it measures.
"""

import asyncio
import itertools
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop


@dataclass
class Load:
    port: int
    path: str
    body: str
    streams: int
    mark: str  # text that occurs once per token
    end: str  # text that occurs once, with the last token


@dataclass
class Result:
    seconds: float
    first_token_seconds: list[float] = field(default_factory=list)  # for each stream
    longest_gaps: list[float] = field(default_factory=list)  # seconds between reads, for each stream


class Stream(asyncio.Protocol):
    """A request whose answer ends with the connection."""

    def __init__(self, request: bytes, mark: bytes) -> None:
        self._request = request
        self._mark = mark
        self._received = bytearray()
        self._reads: list[float] = []
        self.first_token: float | None = None
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)  # uvloop's transport is not a subclass

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._reads.append(time.perf_counter())
        if self.first_token is None and self._mark in self._received:
            self.first_token = time.perf_counter()

    def connection_lost(self, _: Exception | None) -> None:
        self.ended.set_result(None)

    @property
    def longest_gap(self) -> float:
        return max((after - before for before, after in itertools.pairwise(self._reads)), default=0.0)

    def check(self, end: bytes) -> None:
        """Raise RuntimeError unless the answer is complete."""
        if not self._received.startswith(b"HTTP/1.1 200 ") or end not in self._received:
            raise RuntimeError(self._received[:1000].decode(errors="replace"))


async def run(load: Load) -> Result:
    body = load.body.encode()
    head = (
        f"POST {load.path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    loop, begun = asyncio.get_running_loop(), time.perf_counter()
    opened = [
        loop.create_connection(lambda: Stream(head.encode() + body, load.mark.encode()), "127.0.0.1", load.port)
        for _ in range(load.streams)
    ]
    streams = [stream for _, stream in await asyncio.gather(*opened)]
    await asyncio.gather(*(stream.ended for stream in streams))
    seconds = time.perf_counter() - begun
    for stream in streams:
        stream.check(load.end.encode())
    first_tokens = [stream.first_token - begun for stream in streams if stream.first_token]
    return Result(seconds, first_tokens, [stream.longest_gap for stream in streams])


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(asdict(uvloop.run(run(Load(**json.loads(line)))))), flush=True)


if __name__ == "__main__":
    main()
