"""The server under the soak, as its clients see it, and what they have seen."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
from aiohttp import ClientTimeout

from tests.conftest import Answer
from tests.soak.answers import Wrong, essence
from tests.soak.questions import Question, of_model

PATIENCE = 600.0  # seconds for an answer, with two restarts in a row of vLLM's engine on a busy machine
RETRY_SECONDS = 0.25
BUSY = (429, 503, 529)  # the queue is full, or an engine is being restarted, in the words of each dialect
JSON = {"Content-Type": "application/json"}
OF_KEYS = b"the API key"  # in the refusals of a key with too many requests
NO_HEADERS: Mapping[str, str] = {}


@dataclass
class Tally:
    """The numbers of all that was asked, by dialect or manner, and what was wrong."""

    answered: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    refused: int = 0  # with 503, to be asked again
    hostile: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Target:
    """A server, and the right answers to the questions that it is asked."""

    def __init__(self, url: str, headers: Mapping[str, str] = NO_HEADERS) -> None:
        self.url = url
        self.headers = headers
        self.session = new_session(url, headers)
        self.expected: dict[str, bytes] = {}  # by the question's name
        self.tally = Tally()
        self._asking: set[object] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.session.close()

    async def reconnect(self) -> None:
        """Close all connections, and begin anew."""
        await self.session.close()
        self.session = new_session(self.url, self.headers)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    @property
    def asking(self) -> set[object]:
        """The questions that are being answered."""
        return self._asking.copy()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what is asked meanwhile among `asking`."""
        key = object()
        self._asking.add(key)
        try:
            yield
        finally:
            self._asking.discard(key)

    async def ask(self, question: Question, headers: Mapping[str, str] = NO_HEADERS) -> Answer:
        """Return the answer, asked for again while the server has no place or no engine for it."""
        async with asyncio.timeout(PATIENCE):
            while (answer := await self.ask_once(question, headers)).status in BUSY:
                if OF_KEYS in answer.body:
                    raise Wrong(f"{question.name}: a key within its limits got {answer.body!r}")
                self.tally.refused += 1
                await asyncio.sleep(RETRY_SECONDS)
        return answer

    async def ask_once(self, question: Question, headers: Mapping[str, str] = NO_HEADERS) -> Answer:
        """Return the answer, whatever its status is."""
        with self.counted():
            every = {**JSON, **headers, **question.headers}
            async with self.session.post(question.path, data=body_of(question), headers=every) as response:
                return Answer(response.status, response.headers, await response.read())

    async def learn(self, questions: Sequence[Question], *, errors: bool = False) -> None:
        """Remember the answers as the right ones, one after the other, and check that they are the same at once.

        Raise Wrong where one is an error, or if `errors`, where one is not.
        """
        for question in questions:
            first = await self.ask(question)
            if ignored := first.headers.get("X-Lmi-Ignored-Parameters"):
                raise Wrong(f"{question.name}: the server ignores {ignored}")
            if (first.status != 200) != errors:
                raise Wrong(f"{question.name}: {first.status} {first.body[:400]!r}")
            self.expected[question.name] = essence(question, first)
        for question, again in zip(questions, await asyncio.gather(*map(self.ask, questions)), strict=True):
            self.check(question, again)

    def check(self, question: Question, answer: Answer) -> None:
        """Raise Wrong unless the answer is the one of the quiet run."""
        try:
            found = essence(question, answer)
        except (ValueError, LookupError) as error:
            raise Wrong(f"{question.name}: {error!r} in {answer.status} {answer.body[-300:]!r}") from None
        if found != self.expected[question.name]:
            raise Wrong(f"{question.name}: {found[:400]!r} is not {self.expected[question.name][:400]!r}")

    def note(self, question: Question, answer: Answer, row: str) -> None:
        """Count a right answer for this row of the report, and note a wrong one."""
        try:
            self.check(question, answer)
            self.tally.answered[row] += 1
        except Wrong as wrong:
            self.tally.wrong.append(f"{row}: {wrong}")

    async def get(self, path: str) -> Any:
        async with self.session.get(path) as response:
            return json.loads(await response.read())


def body_of(question: Question) -> bytes:
    if isinstance(question.payload, bytes):
        return question.payload
    return json.dumps(of_model(question.path, question.payload)).encode()


def new_session(url: str, headers: Mapping[str, str]) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(url, headers=headers, timeout=ClientTimeout(PATIENCE), connector=connector)
