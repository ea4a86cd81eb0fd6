"""Hostile clients: long texts, silence, and bytes that are no request, each with the reactions that are right."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import grpc

from tests.handlers.kserve_grpc.asking import infer_request
from tests.handlers.kserve_grpc.test_messages import PREFACE, TEXT, mutations, status
from tests.soak import raw
from tests.soak.answers import Wrong
from tests.soak.keys import HOSTILE, authorization, headers_of
from tests.soak.questions import MODEL, Question
from tests.soak.target import BUSY, JSON, PATIENCE, Target, body_of

HEADERS = JSON | headers_of(HOSTILE)
FORGED = "00:00:00 INFO forged"
ESCAPE = f"\x1b[31mred\x1b[0m\n{FORGED}"
WORDS = "hey you there. "
CLOSED = 0  # instead of a status, where there is none
STAYS = (0.0, 0.3, 3.0, None, None)  # seconds after which a client leaves; None: it reads the whole answer
SILENT_SECONDS = 120.0  # in which the server must have closed a silent connection: four times as long as it waits
MUTATED = frozenset({"OK", "NOT_FOUND", "INVALID_ARGUMENT", "UNAVAILABLE", "RESOURCE_EXHAUSTED"})

Address = tuple[str, int]
Party = Callable[[asyncio.Event], Awaitable[None]]  # does harm once, and ends early if it is over


@dataclass(frozen=True)
class Hostile:
    """Bytes for the HTTP port, and the statuses that may come back beside those of a busy server."""

    name: str
    data: bytes
    statuses: frozenset[int]


@dataclass(frozen=True)
class Harm:
    """How much hostile clients do."""

    length: int = 6_000_000  # characters of the longest text
    connections: int = 300  # that are silent, at once
    stays: tuple[float | None, ...] = STAYS


def _post(path: str, payload: Any, host: str = "localhost") -> bytes:
    return raw.request(path, body_of(Question("", path, payload)), HEADERS, host)


def hostile(length: int, port: int) -> Iterator[Hostile]:
    """Yield the clients, the texts of which have at most so many characters."""
    text, words = WORDS * (length // len(WORDS)), WORDS * (length // len(WORDS) // 10)
    separators = [f"s{place}" for place in range(45_000)]
    read = frozenset({200})
    split = {"text": words, "num_tokens_in_chunk": 1, "separators": separators}
    yield Hostile("split_text, 45,000 separators", _post("/v1/split_text", split), frozenset({422}))
    yield Hostile("split_text", _post("/v1/split_text", split | {"separators": separators[:256]}), read)
    yield Hostile("tokenize", _post("/tokenize", {"prompt": text, "return_token_strs": True}), read)
    yield Hostile("/v2/tokenizer", _post("/v2/tokenizer", {"prompt": text}), read)
    cut = {"inputs": text, "parameters": {"truncate": 20, "max_new_tokens": 4}}
    yield Hostile("truncate", _post("/invocations", cut), read)
    body = b"2\r\n{}\r\n0\r\n\r\nGET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"POST /invocations HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n"
    yield Hostile("chunks in HTTP/1.0", head + b"\r\n" + body, frozenset({400, CLOSED}))  # unread bytes reset it
    adapter = {"inputs": "a", "adapters": ESCAPE}
    yield Hostile("escape codes, adapter", _post("/invocations", adapter), frozenset({424}))
    yield Hostile("escape codes, model", _post(f"/predictions/{quote(ESCAPE)}", {"inputs": "a"}), frozenset({404}))
    at = f"/models?url={quote(ESCAPE)}"
    yield Hostile("escape codes, url", _post(at, {}, f"localhost:{port}"), frozenset({400}))


async def send(target: Target, each: Hostile, stays: float | None) -> None:
    """Send the bytes, and read the answer or leave before it comes."""
    data = b""
    async with raw.connected(target.address, 1 << 20) as (reader, writer):
        with target.counted(), suppress(ConnectionError):
            writer.write(each.data)
            if stays is not None:
                await asyncio.sleep(stays)
                target.tally.left[f"hostile: {each.name}"] += 1
                return
            async with asyncio.timeout(PATIENCE):
                data = await reader.read()
    found, _ = raw.parsed(data) if data else (CLOSED, b"")
    if found not in each.statuses | {*BUSY}:
        raise Wrong(f"{each.name}: {found}, not {sorted(each.statuses)}: {data[:300]!r}")
    target.tally.hostile[f"{each.name}: {found}"] += 1


async def say_nothing(address: Address, sent: bytes, count: int, stays: float | None, over: asyncio.Event) -> None:
    """Open connections that never have a request, and leave, or wait until the server closes them or it is over."""

    async def one() -> None:
        async with raw.connected(address) as (reader, writer):
            writer.write(sent)
            with suppress(ConnectionError):
                while await reader.read(4096):
                    pass

    async with asyncio.timeout(SILENT_SECONDS):
        every: asyncio.Future[Any] = asyncio.gather(*(one() for _ in range(count)))
        leaving: asyncio.Future[Any] = asyncio.ensure_future(over.wait() if stays is None else asyncio.sleep(stays))
        await asyncio.wait([every, leaving], return_when=asyncio.FIRST_COMPLETED)
        for each in (every, leaving):
            each.cancel()
        await asyncio.gather(every, leaving, return_exceptions=True)


async def mutate(channel: Any, target: Target, messages: list[bytes]) -> None:
    """Send damaged messages of gRPC."""
    for message in messages:
        for method in ("ModelInfer", "ModelStreamInfer"):
            found = await status(channel, method, [message], authorization(HOSTILE))
            if found not in MUTATED:
                raise Wrong(f"a damaged message of {method}: {found}")
            target.tally.hostile[f"damaged messages of gRPC: {found}"] += 1


def parties(target: Target, grpc_address: str, harm: Harm, seed: int) -> Iterator[Party]:
    """Yield the parties."""
    numbers = random.Random(seed)
    every = [*hostile(harm.length, target.address[1])]
    host, _, port = grpc_address.rpartition(":")
    silent = [(target.address, b""), ((host, int(port)), b""), ((host, int(port)), PREFACE)]
    request = infer_request(TEXT, id="a")
    request.model_name = MODEL
    messages = mutations(request.SerializeToString())

    async def bytes_once(over: asyncio.Event) -> None:
        await send(target, numbers.choice(every), numbers.choice(harm.stays))

    async def silence_once(over: asyncio.Event) -> None:
        address, sent = numbers.choice(silent)
        await say_nothing(address, sent, harm.connections, numbers.choice(harm.stays), over)
        target.tally.hostile["crowds of silent connections"] += 1

    async def messages_once(over: asyncio.Event) -> None:
        async with grpc.aio.insecure_channel(grpc_address) as channel:
            await mutate(channel, target, numbers.sample(messages, 10))

    yield from (bytes_once, bytes_once, silence_once, messages_once)


async def again_and_again(party: Party, target: Target, over: asyncio.Event) -> None:
    """Go on until it is over, and note what is wrong."""
    while not over.is_set():
        try:
            await party(over)
        except (Wrong, OSError, TimeoutError, ValueError) as error:
            target.tally.wrong.append(f"hostile: {error!r}")
        await asyncio.sleep(0.1)
