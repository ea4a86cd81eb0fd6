"""LlamaIndex's model of servers with OpenAI's API."""

from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from tests.clients.programs.cases import case, equal, hello, saying
from tests.clients.programs.paint import PAINT, Paint
from tests.clients.programs.values import (
    ANSWER,
    CITY,
    HELLO,
    QUESTION,
    SAYING,
    WEATHER_ANSWER,
    WEATHER_QUESTION,
    weather,
)

PACKAGE = "llama-index-llms-openai-like"


def model(url: str = "", name: str = HELLO, **options: Any) -> Any:
    options = {"is_chat_model": True, "temperature": 0, "max_tokens": 64, "max_retries": 0} | options
    return OpenAILike(model=name, api_base=f"{url or hello()}/v1", api_key="any", **options)


@case("OpenAI chats", "answers")
def chat() -> None:
    answer = model().chat([ChatMessage(role="user", content=QUESTION)])
    equal((answer.message.content, answer.raw.usage.completion_tokens), (ANSWER, 16))


@case("OpenAI chats", "streams")
def chat_stream() -> None:
    chunks = list(model().stream_chat([ChatMessage(role="user", content=QUESTION)]))
    equal(("".join(chunk.delta or "" for chunk in chunks), chunks[-1].message.content), (ANSWER, ANSWER))


@case("OpenAI chats", "asyncio")
async def chat_asyncio() -> None:
    equal((await model().achat([ChatMessage(role="user", content=QUESTION)])).message.content, ANSWER)


@case("OpenAI chats", "tool calls and their results")
def tools() -> None:
    asked, tool = model(saying(), SAYING, is_function_calling_model=True), FunctionTool.from_defaults(weather)
    answer = asked.chat_with_tools([tool], user_msg=WEATHER_QUESTION)
    (call,) = asked.get_tool_calls_from_response(answer)
    equal((call.tool_name, call.tool_kwargs), ("weather", CITY))
    result = ChatMessage(
        role="tool", content=weather(**call.tool_kwargs), additional_kwargs={"tool_call_id": call.tool_id}
    )
    history = [ChatMessage(role="user", content=WEATHER_QUESTION), answer.message, result]
    equal(asked.chat_with_tools([tool], chat_history=history).message.content, WEATHER_ANSWER)


@case("OpenAI chats", "structured outputs")
def structured() -> None:
    asked = model(is_function_calling_model=True, should_use_structured_outputs=True, max_tokens=200)
    found = asked.as_structured_llm(Paint).chat([ChatMessage(role="user", content=QUESTION)])
    equal(found.raw, PAINT)


@case("OpenAI completions", "answers")
def completion() -> None:
    equal(model(is_chat_model=False).complete(QUESTION).text, ANSWER)


@case("OpenAI completions", "streams")
def completion_stream() -> None:
    chunks = list(model(is_chat_model=False).stream_complete(QUESTION))
    equal("".join(chunk.delta for chunk in chunks), ANSWER)
