"""The manners of clients: those that read their answer, and those that leave, dawdle or err."""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from tests.clients.test_every_dialect import ENDLESS, STORY, STREAM, STREAMS
from tests.conftest import Answer
from tests.soak import raw
from tests.soak.answers import Wrong
from tests.soak.keys import STEADY_KEYS, headers_of
from tests.soak.questions import BAD, Question, of_model
from tests.soak.target import BUSY, JSON, PATIENCE, RETRY_SECONDS, Target, body_of

SEVERAL: dict[str, Any] = {"prompt": STORY, "n": 3, "temperature": 1.0, **ENDLESS}
SLOW_PIECE, SLOW_SECONDS = 600, 0.03
SILENT: tuple[bytes, ...] = (b"", b"POST /invocations HTTP/1.1\r\nHost:")
END_SECONDS = 60.0  # in which a stream that its client has half closed must end

Manner = Callable[["Client"], Awaitable[None]]


def endless(numbers: random.Random) -> tuple[str, dict[str, Any]]:
    """Return a stream that goes on for long, of any dialect."""
    path, payload = numbers.choice([*STREAMS, ("/v1/completions", SEVERAL)])
    return path, of_model(path, payload) | ({} if path == "/v1/generate_stream" else STREAM)


class Client:
    """A client that chooses a manner again and again."""

    def __init__(self, target: Target, numbers: random.Random, asked: list[Question], key: str) -> None:
        self.target = target
        self.numbers = numbers
        self.asked = asked
        self.headers = headers_of(key)

    async def run(self, over: asyncio.Event, manners: dict[Manner, int]) -> None:
        """Go on until it is over, and note what is wrong."""
        while not over.is_set():
            (manner,) = self.numbers.choices([*manners], [*manners.values()])
            try:
                await manner(self)
            except (Wrong, aiohttp.ClientError, TimeoutError, ValueError) as error:
                self.target.tally.wrong.append(f"{manner.__name__}: {error!r}")

    async def until_free(self) -> None:
        await asyncio.sleep(RETRY_SECONDS)


async def read(client: Client) -> None:
    """Ask, and read the whole answer."""
    question = client.numbers.choice(client.asked)
    client.target.check(question, await client.target.ask(question, client.headers))
    client.target.tally.answered[_manner_of(question)] += 1


async def err(client: Client) -> None:
    """Ask what is an error, which must be the same one each time."""
    question = client.numbers.choice(BAD)
    client.target.check(question, await client.target.ask(question, client.headers))
    client.target.tally.answered["errors"] += 1


async def dawdle(client: Client) -> None:
    """Read a stream so slowly that the server has to wait."""
    question = client.numbers.choice([each for each in client.asked if each.streams])
    request = raw.request(question.path, body_of(question), JSON | client.headers | question.headers)
    async with asyncio.timeout(300), raw.connected(client.target.address) as (reader, writer):
        with client.target.counted():
            writer.write(request)
            data = b""
            while piece := await reader.read(SLOW_PIECE):
                data += piece
                await asyncio.sleep(SLOW_SECONDS)
    status, body = raw.parsed(data)
    if status not in BUSY:
        client.target.check(question, Answer(status, {}, body))
        client.target.tally.answered["slow readers"] += 1


async def leave_early(client: Client) -> None:
    """Send a part of a request, or all of it, and leave before anything came back."""
    path, payload = endless(client.numbers)
    data = raw.request(path, body_of(Question("", path, payload)), JSON | client.headers)
    sent = client.numbers.choice([*SILENT, data[: len(data) // 2], data[:-5], data, data])
    async with raw.connected(client.target.address) as (_, writer):
        writer.write(sent)
        await asyncio.sleep(client.numbers.choice([0, 0.001, 0.01, 0.1, 1.0]))
    client.target.tally.left["before the answer"] += 1


async def leave_stream(client: Client) -> None:
    """Read some of a stream and leave."""
    path, payload = endless(client.numbers)
    async with client.target.session.post(path, json=payload, headers=client.headers) as response:
        for _ in range(client.numbers.choice([1, 1, 2, 10, 40])):
            if not await response.content.readany():
                break
        response.close()
    client.target.tally.left["within a stream"] += 1


async def read_nothing(client: Client) -> None:
    """Ask for a long stream, read nothing of it for a while, and leave."""
    path, payload = endless(client.numbers)
    async with raw.connected(client.target.address) as (_, writer):
        writer.write(raw.request(path, body_of(Question("", path, payload)), JSON | client.headers))
        await asyncio.sleep(client.numbers.uniform(0.5, 4))
    client.target.tally.left["without reading"] += 1


async def half_close(client: Client) -> None:
    """End one's own side in a stream, as a proxy does whose client has left, and read what still comes."""
    path, payload = endless(client.numbers)
    async with raw.connected(client.target.address, 1 << 16) as (reader, writer):
        writer.write(raw.request(path, body_of(Question("", path, payload)), JSON | client.headers))
        async with asyncio.timeout(PATIENCE):  # an engine may be restarted meanwhile
            await reader.read(100)
        writer.write_eof()
        async with asyncio.timeout(END_SECONDS):
            while await reader.read(1 << 16):
                pass
    client.target.tally.left["half closed"] += 1


async def abort(client: Client) -> None:
    """Have a stream ended over another connection, by its id."""
    path, payload = endless(client.numbers)
    request_id = f"soak-{client.numbers.randrange(10**9)}"
    headers = client.headers | {"x-request-id": request_id}
    async with client.target.session.post(path, json=payload, headers=headers) as response:
        await response.content.readany()
        if response.status in BUSY:
            return await client.until_free()
        body = {"request_id": request_id}
        async with client.target.session.post("/v1/abort_request", json=body, headers=client.headers) as aborted:
            if aborted.status not in (200, 404):  # it has ended by itself
                raise Wrong(f"the abort was answered with {aborted.status} {await aborted.text()}")
        await response.read()
    client.target.tally.left["aborted by id"] += 1


MANNERS: dict[Manner, int] = {
    read: 60,
    err: 10,
    dawdle: 4,
    leave_early: 8,
    leave_stream: 8,
    read_nothing: 2,
    half_close: 4,
    abort: 4,
}


def clients(target: Target, count: int, seed: int, asked: list[Question]) -> list[Client]:
    keys = itertools.cycle(STEADY_KEYS)
    return [Client(target, random.Random(f"{seed} {place}"), asked, next(keys)) for place in range(count)]


def _manner_of(question: Question) -> str:
    """Return the row of the report that an answer counts for."""
    if question.headers or question.name.startswith("adapter"):
        return "adapters"
    return question.dialect or "OpenAI's and LMI's other parameters"
