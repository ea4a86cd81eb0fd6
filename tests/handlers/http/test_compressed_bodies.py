"""Compressed bodies over a real socket: bombs are refused for what they cost, and others are read."""

import gzip
import time
import zlib
from collections.abc import Callable

import brotli
import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

MakeBomb = Callable[[], bytes]
Convert = Callable[[bytes], bytes]

MEGABYTE = 1 << 20
SIZE = 300  # megabytes in a bomb


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


def gzip_bomb() -> bytes:
    compressor = zlib.compressobj(wbits=31)
    return b"".join(compressor.compress(bytes(MEGABYTE)) for _ in range(SIZE)) + compressor.flush()


def brotli_bomb() -> bytes:
    compressor = brotli.Compressor(quality=5)
    block = b" " * MEGABYTE
    return b"".join(compressor.process(block) for _ in range(SIZE)) + bytes(compressor.finish())


@pytest.mark.parametrize(
    ("encoding", "bomb", "decompress"), [("gzip", gzip_bomb, gzip.decompress), ("br", brotli_bomb, brotli.decompress)]
)
@pytest.mark.parametrize(("path", "status"), [("/invocations", 413), ("/nowhere", 404)])
async def test_bombs(
    server: RunningServer, encoding: str, bomb: MakeBomb, decompress: Convert, path: str, status: int
) -> None:
    """A bomb costs the server a part of what it would cost to decompress it."""
    body = bomb()
    begun = time.process_time()
    assert len(decompress(body)) == SIZE * MEGABYTE
    whole = time.process_time() - begun
    begun = time.process_time()
    async with server.client.post(path, data=body, headers={"Content-Encoding": encoding}) as response:
        assert response.status == status
        await response.read()
    assert (await server.get("/ping")).status == 200
    assert time.process_time() - begun < whole / 2


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("br", brotli.compress)])
async def test_others_are_read(server: RunningServer, encoding: str, compress: Convert) -> None:
    body = compress(b'{"inputs": "Hi"}')
    for _ in range(2):  # the connection stays
        answer = await server.post("/invocations", data=body, headers={"Content-Encoding": encoding})
        assert answer.json()["generated_text"]
