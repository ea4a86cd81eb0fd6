"""Compressed bodies over a real socket: bombs are refused for what they cost, and others are read."""

import asyncio
import gzip
import time
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache

import pytest

from lmi_core.errors import InvalidPayload, LmiError, PayloadTooLarge
from lmi_handlers.http.bodies.compressed import ANY_RATIO, MAX_MEMBERS, MAX_RATIO, decompress
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.longest_hold import longest_hold

MakeBomb = Callable[[], bytes]
Convert = Callable[[bytes], bytes]

MEGABYTE = 1 << 20
SIZE = 150  # megabytes in a bomb
LIMIT = 16 * 1024 * 1024  # max_request_size
AT_ONCE = 50
HELD = 0.02  # seconds of CPU time
ATTEMPTS = 8  # on a busy machine, to give memory back is CPU time too
PAYLOAD = b'{"inputs": "Hi"}'


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


def zlib_bomb(window_bits: int) -> bytes:
    compressor = zlib.compressobj(wbits=window_bits)
    return b"".join(compressor.compress(bytes(MEGABYTE)) for _ in range(SIZE)) + compressor.flush()


@cache
def gzip_bomb() -> bytes:
    return zlib_bomb(31)


@cache
def deflate_bomb() -> bytes:
    return zlib_bomb(15)


def raw_deflate(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-15)


@pytest.mark.parametrize(("path", "status"), [("/invocations", 413), ("/nowhere", 404)])
async def test_bombs(server: RunningServer, path: str, status: int) -> None:
    """A bomb costs the server a part of what it would cost to decompress it."""
    body = gzip_bomb()
    begun = time.process_time()
    assert len(gzip.decompress(body)) == SIZE * MEGABYTE
    whole = time.process_time() - begun
    costs = []
    for _ in range(2):  # the first one imports what it needs
        begun = time.process_time()
        async with server.client.post(path, data=body, headers={"Content-Encoding": "gzip"}) as response:
            assert response.status == status
            await response.read()
        assert (await server.get("/ping")).status == 200
        costs.append(time.process_time() - begun)
    assert min(costs) < whole / 2


@pytest.mark.parametrize(("encoding", "bomb"), [("gzip", gzip_bomb), ("deflate", deflate_bomb), ("zstd", gzip_bomb)])
async def test_many_bombs_at_once(server: RunningServer, encoding: str, bomb: MakeBomb) -> None:
    """Bombs are decompressed one after the other, beside the loop, so that neither time nor memory adds up."""
    body = bomb()

    async def send() -> int:
        async with server.client.post("/invocations", data=body, headers={"Content-Encoding": encoding}) as response:
            await response.read()
            return response.status

    expected = {415 if encoding == "zstd" else 413}
    await send()
    holds = list[tuple[float, str]]()
    while len(holds) < ATTEMPTS and (not holds or holds[-1][0] >= HELD):
        with longest_hold() as hold:
            assert set(await asyncio.gather(*(send() for _ in range(AT_ONCE)))) == expected
        holds.append((hold.seconds, hold.callback))
    assert holds[-1][0] < HELD, holds
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        assert set(await asyncio.gather(*(send() for _ in range(AT_ONCE)))) == expected
        taken = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert taken < AT_ONCE * (len(body) + 200_000) + 3 * LIMIT  # the bodies as they came, and one decompressed


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate)],
)
async def test_others_are_read(server: RunningServer, encoding: str, compress: Convert) -> None:
    body = compress(PAYLOAD)
    for _ in range(2):  # the connection stays
        answer = await server.post("/invocations", data=body, headers={"Content-Encoding": encoding})
        assert answer.json()["generated_text"]


@pytest.mark.parametrize(
    ("encoding", "body", "reason"),
    [
        ("gzip", PAYLOAD, "incorrect header check"),
        ("gzip", gzip.compress(PAYLOAD, mtime=0)[:-9], "it ends too early"),
        ("gzip", gzip.compress(PAYLOAD, mtime=0) + PAYLOAD, "incorrect header check"),
        ("deflate", zlib.compress(PAYLOAD)[:-5], "it ends too early"),
    ],
)
async def test_bodies_that_cannot_be_read(server: RunningServer, encoding: str, body: bytes, reason: str) -> None:
    answer = await server.post("/v1/completions", data=body, headers={"Content-Encoding": encoding})
    text = answer.body.decode()
    assert answer.status == 400
    assert f"the body cannot be read as its Content-Encoding, {encoding}: " in text
    assert reason in text


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, raw_deflate])
@pytest.mark.parametrize("size", [0, 1, 70_000, ANY_RATIO])
def test_what_is_within_the_bounds(compress: Convert, size: int) -> None:
    data = (b'{"a": 1}' * (size // 8 + 1))[:size]
    encoding = "gzip" if compress is gzip.compress else "deflate"
    assert decompress(compress(data), encoding, LIMIT) == data


def test_members_follow_each_other() -> None:
    pieces = [b"%d " % number for number in range(100)]
    assert decompress(b"".join(map(gzip.compress, pieces)), "gzip", LIMIT) == b"".join(pieces)
    with pytest.raises(InvalidPayload, match=f"more than {MAX_MEMBERS} members"):
        decompress(gzip.compress(b"") * 300_000, "gzip", LIMIT)


def test_what_is_beyond_them() -> None:
    with pytest.raises(PayloadTooLarge, match=f"not expand to more than {MAX_RATIO} times its compressed size"):
        decompress(gzip.compress(bytes(ANY_RATIO + 1)), "gzip", LIMIT)
    with pytest.raises(PayloadTooLarge, match=r"at most 1000 bytes \(max_request_size\)"):
        decompress(gzip.compress(bytes(1001)), "gzip", 1000)


@pytest.mark.parametrize(
    "body",
    [gzip.compress(bytes(LIMIT + 1), mtime=0), gzip.compress(bytes(LIMIT), mtime=0)[:-9]],
    ids=["gzip", "short gzip"],
)
def test_an_error_keeps_nothing_of_the_body(body: bytes) -> None:
    """Errors wait for the event loop, which may be held while others come."""
    errors: list[LmiError] = []
    tracemalloc.start()
    try:
        for _ in range(20):
            with pytest.raises((PayloadTooLarge, InvalidPayload)) as raised:
                decompress(body + bytes(LIMIT // 50), "gzip", LIMIT)
            errors.append(raised.value)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 2 * LIMIT, errors


@pytest.mark.parametrize("encoding", ["x-gzip", "compress", "br", "gzip, deflate", "utf-8", "é"])
async def test_unknown_encodings(server: RunningServer, encoding: str) -> None:
    for path in ("/invocations", "/v1/completions", "/generate"):
        answer = await server.post(path, data=PAYLOAD, headers={"Content-Encoding": encoding})
        assert answer.status == 415
        assert answer.headers["Accept-Encoding"] == "gzip, deflate, identity"
        assert f"Given: '{encoding}'" in answer.body.decode()
    assert server.scripted.history == []


@pytest.mark.parametrize("encoding", ["identity", "Identity"])
async def test_no_encoding(server: RunningServer, encoding: str) -> None:
    answer = await server.post("/invocations", data=PAYLOAD, headers={"Content-Encoding": encoding})
    assert answer.status == 200


@pytest.mark.parametrize("path", ["/invocations", "/v1/completions", "/v2/models/model/generate"])
async def test_byte_order_mark(server: RunningServer, path: str) -> None:
    """Editors and shells of Windows write one at the beginning of files, which clients then send."""
    body = '\ufeff{"inputs": "é"}' if path == "/invocations" else '\ufeff{"prompt": "é", "text_input": "é"}'
    answer = await server.post(path, data=body.encode())
    assert (answer.status, server.scripted.history[-1].prompt) == (200, "é"), answer.body
