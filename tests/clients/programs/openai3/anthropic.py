"""Anthropic's client."""

from typing import Any

from anthropic import Anthropic, AsyncAnthropic, BadRequestError

from tests.clients.programs.cases import case, equal, hello, raising, saying
from tests.clients.programs.values import (
    ANSWER,
    ANSWER_TOKENS,
    CHAT_TOKENS,
    CITY,
    HELLO,
    MESSAGES,
    SAYING,
    THINK_MESSAGES,
    THOUGHT,
    WEATHER_ANSWER,
    WEATHER_FUNCTION,
    WEATHER_MESSAGES,
    WEATHER_RESULT,
)

PACKAGE = "anthropic"

GREEDY: Any = {"model": HELLO, "messages": MESSAGES, "max_tokens": 64, "extra_body": {"temperature": 0}}
TOOL: Any = {"name": "weather", "description": "Weather.", "input_schema": WEATHER_FUNCTION["parameters"]}


def client(url: str = "") -> Anthropic:
    return Anthropic(base_url=url or hello(), api_key="any", max_retries=0)


@case("Anthropic Messages", "answers")
def message() -> None:
    answer: Any = client().messages.create(**GREEDY)
    equal((answer.content[0].text, answer.stop_reason), (ANSWER, "end_turn"))
    equal((answer.usage.input_tokens, answer.usage.output_tokens), (CHAT_TOKENS, ANSWER_TOKENS))


@case("Anthropic Messages", "streams")
def message_stream() -> None:
    with client().messages.stream(**GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    equal((text, final.stop_reason, final.usage.output_tokens), (ANSWER, "end_turn", ANSWER_TOKENS))


@case("Anthropic Messages", "asyncio")
async def message_asyncio() -> None:
    async with AsyncAnthropic(base_url=hello(), api_key="any", max_retries=0) as asynchronous:
        answer: Any = await asynchronous.messages.create(**GREEDY)
        async with asynchronous.messages.stream(**GREEDY) as stream:
            text = "".join([text async for text in stream.text_stream])
    equal((answer.content[0].text, text), (ANSWER, ANSWER))


@case("Anthropic Messages", "tool calls and their results")
def tools() -> None:
    asked: Any = {"model": SAYING, "max_tokens": 64, "tools": [TOOL]}
    answer = client(saying()).messages.create(messages=WEATHER_MESSAGES, **asked)
    equal(answer.stop_reason, "tool_use")
    (call,) = [block for block in answer.content if block.type == "tool_use"]
    equal((call.name, call.input), ("weather", CITY))
    result = {"type": "tool_result", "tool_use_id": call.id, "content": WEATHER_RESULT}
    messages: Any = [
        *WEATHER_MESSAGES,
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [result]},
    ]
    last: Any = client(saying()).messages.create(messages=messages, **asked)
    equal((last.content[0].text, last.stop_reason), (WEATHER_ANSWER, "end_turn"))


@case("Anthropic Messages", "reasoning")
def thoughts() -> None:
    answer = client(saying()).messages.create(model=SAYING, max_tokens=64, messages=THINK_MESSAGES)
    found = [getattr(block, block.type) for block in answer.content]
    equal(found, [THOUGHT, ANSWER])


@case("Anthropic Messages", "token counts")
def count() -> None:
    equal(client().messages.count_tokens(model=HELLO, messages=MESSAGES).input_tokens, CHAT_TOKENS)


@case("Anthropic Messages", "errors")
def errors() -> None:
    with raising(BadRequestError, "max_tokens"):
        client().messages.create(**{**GREEDY, "max_tokens": 0})
