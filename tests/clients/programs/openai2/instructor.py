"""Instructor, which asks OpenAI's client for structured outputs in several ways."""

from typing import Any

import instructor
from openai import AsyncOpenAI, OpenAI

from tests.clients.programs.cases import case, equal, hello
from tests.clients.programs.paint import PAINT, Paint
from tests.clients.programs.values import HELLO, MESSAGES

PACKAGE = "instructor"

ASKED: dict[str, Any] = {
    "model": HELLO,
    "messages": MESSAGES,
    "response_model": Paint,
    "temperature": 0,
    "max_tokens": 200,
    "max_retries": 0,
}


def client(mode: Any) -> Any:
    return instructor.from_openai(OpenAI(base_url=f"{hello()}/v1", api_key="any", max_retries=0), mode=mode)


def check(found: Any) -> None:
    """Compare the fields, as the object is of a class that the client made of the one asked for."""
    equal(found.model_dump(), PAINT.model_dump())


@case("OpenAI chats", "structured outputs by `Mode.JSON_SCHEMA`")
def json_schema() -> None:
    check(client(instructor.Mode.JSON_SCHEMA).create(**ASKED))


@case("OpenAI chats", "by `Mode.TOOLS`")
def tools() -> None:
    check(client(instructor.Mode.TOOLS).create(**ASKED))


@case("OpenAI chats", "by `Mode.TOOLS_STRICT`")
def strict_tools() -> None:
    check(client(instructor.Mode.TOOLS_STRICT).create(**ASKED))


@case("OpenAI chats", "streams of partial objects")
def partial() -> None:
    found = list(client(instructor.Mode.TOOLS).create_partial(**ASKED))
    equal((found[-1].model_dump(), len(found) > 2), (PAINT.model_dump(), True))


@case("OpenAI chats", "asyncio")
async def asynchronous() -> None:
    async with AsyncOpenAI(base_url=f"{hello()}/v1", api_key="any", max_retries=0) as openai:
        found: Any = instructor.from_openai(openai, mode=instructor.Mode.JSON_SCHEMA)
        check(await found.create(**ASKED))
