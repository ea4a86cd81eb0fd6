"""Ollama's client."""

from typing import Any

from ollama import AsyncClient, Client, ResponseError

from tests.clients.programs.cases import case, equal, hello, saying
from tests.clients.programs.paint import PAINT, Paint
from tests.clients.programs.values import (
    ANSWER,
    ANSWER_TOKENS,
    CHAT_TOKENS,
    CITY,
    HELLO,
    MESSAGES,
    QUESTION,
    SAYING,
    THINK_MESSAGES,
    THOUGHT,
    WEATHER_ANSWER,
    WEATHER_MESSAGES,
    WEATHER_RESULT,
    weather,
)

PACKAGE = "ollama"

GREEDY = {"temperature": 0, "num_predict": 200}


@case("Ollama", "answers")
def generate() -> None:
    answer = Client(hello()).generate(HELLO, QUESTION, options=GREEDY)
    equal((answer.response, answer.done, answer.done_reason), (ANSWER, True, "stop"))
    equal((answer.prompt_eval_count, answer.eval_count), (CHAT_TOKENS, ANSWER_TOKENS))


@case("Ollama", "streams")
def generate_stream() -> None:
    chunks = list(Client(hello()).generate(HELLO, QUESTION, options=GREEDY, stream=True))
    equal("".join(chunk.response or "" for chunk in chunks), ANSWER)
    equal([chunk.done for chunk in chunks], [False] * (len(chunks) - 1) + [True])


@case("Ollama", "chats")
def chat() -> None:
    answer = Client(hello()).chat(HELLO, MESSAGES, options=GREEDY)
    equal((answer.message.content, answer.done_reason), (ANSWER, "stop"))
    chunks = Client(hello()).chat(HELLO, MESSAGES, options=GREEDY, stream=True)
    equal("".join(chunk.message.content or "" for chunk in chunks), ANSWER)


@case("Ollama", "asyncio")
async def chat_asyncio() -> None:
    client = AsyncClient(hello())
    equal((await client.chat(HELLO, MESSAGES, options=GREEDY)).message.content, ANSWER)
    chunks = [chunk async for chunk in await client.generate(HELLO, QUESTION, options=GREEDY, stream=True)]
    equal("".join(chunk.response or "" for chunk in chunks), ANSWER)


@case("Ollama", "structured outputs")
def structured() -> None:
    answer = Client(hello()).chat(HELLO, MESSAGES, options=GREEDY, format=Paint.model_json_schema())
    equal(Paint.model_validate_json(answer.message.content or ""), PAINT)


@case("Ollama", "tool calls and their results")
def tools() -> None:
    client, messages = Client(saying()), list[Any](WEATHER_MESSAGES)
    answer = client.chat(SAYING, messages, tools=[weather])
    (call,) = answer.message.tool_calls or []
    equal((call.function.name, call.function.arguments), ("weather", CITY))
    messages += [answer.message, {"role": "tool", "tool_name": "weather", "content": WEATHER_RESULT}]
    equal(client.chat(SAYING, messages, tools=[weather]).message.content, WEATHER_ANSWER)


@case("Ollama", "reasoning")
def thinking() -> None:
    answer = Client(saying()).chat(SAYING, THINK_MESSAGES, think=True)
    equal((answer.message.thinking, answer.message.content), (THOUGHT, ANSWER))


@case("Ollama", "models")
def models() -> None:
    names = [model.model for model in Client(hello()).list().models]
    assert any(str(name).partition(":")[0] == HELLO for name in names), names
    assert "completion" in (Client(hello()).show(HELLO).capabilities or [])


@case("Ollama", "errors")
def errors() -> None:
    try:
        Client(hello()).chat("llama-none", MESSAGES)
    except ResponseError as error:
        equal((error.status_code, "llama-none" in error.error), (404, True))
    else:
        raise AssertionError("an unknown model is taken")
