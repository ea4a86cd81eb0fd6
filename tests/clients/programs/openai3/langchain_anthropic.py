"""LangChain's models of Anthropic's API."""

from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool

from tests.clients.programs.cases import case, equal, hello, saying
from tests.clients.programs.paint import PAINT, Paint
from tests.clients.programs.values import (
    ANSWER,
    ANSWER_TOKENS,
    CHAT_TOKENS,
    CITY,
    HELLO,
    QUESTION,
    SAYING,
    WEATHER_ANSWER,
    WEATHER_QUESTION,
    weather,
)

PACKAGE = "langchain-anthropic"


def chat_model(url: str = "", model: str = HELLO) -> Any:
    return ChatAnthropic(base_url=url or hello(), api_key="any", model=model, temperature=0, max_tokens=200)


@case("Anthropic Messages", "answers")
def answers() -> None:
    answer = chat_model().invoke(QUESTION)
    equal((answer.content, answer.response_metadata["stop_reason"]), (ANSWER, "end_turn"))
    usage = answer.usage_metadata
    equal((usage["input_tokens"], usage["output_tokens"]), (CHAT_TOKENS, ANSWER_TOKENS))


@case("Anthropic Messages", "streams")
def streams() -> None:
    equal("".join(chunk.text for chunk in chat_model().stream(QUESTION)), ANSWER)


@case("Anthropic Messages", "structured outputs")
def structured() -> None:
    equal(chat_model().with_structured_output(Paint).invoke(QUESTION), PAINT)


@case("Anthropic Messages", "tool calls and their results")
def tools() -> None:
    model = chat_model(saying(), SAYING).bind_tools([tool(weather)])
    messages: list[Any] = [HumanMessage(WEATHER_QUESTION)]
    messages.append(model.invoke(messages))
    (call,) = messages[-1].tool_calls
    equal((call["name"], call["args"]), ("weather", CITY))
    messages.append(ToolMessage(weather(**call["args"]), tool_call_id=call["id"]))
    equal(model.invoke(messages).text, WEATHER_ANSWER)
