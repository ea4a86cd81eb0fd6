"""LangChain's models of Ollama's API."""

from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaLLM

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

PACKAGE = "langchain-ollama"


def chat_model(url: str = "", model: str = HELLO) -> Any:
    return ChatOllama(base_url=url or hello(), model=model, temperature=0, num_predict=200)


@case("Ollama", "answers")
def answers() -> None:
    answer = chat_model().invoke(QUESTION)
    equal((answer.content, answer.usage_metadata["input_tokens"]), (ANSWER, CHAT_TOKENS))
    equal(answer.usage_metadata["output_tokens"], ANSWER_TOKENS)
    equal(OllamaLLM(base_url=hello(), model=HELLO, temperature=0).invoke(QUESTION), ANSWER)


@case("Ollama", "streams")
def streams() -> None:
    equal("".join(chunk.content for chunk in chat_model().stream(QUESTION)), ANSWER)


@case("Ollama", "structured outputs")
def structured() -> None:
    equal(chat_model().with_structured_output(Paint).invoke(QUESTION), PAINT)


@case("Ollama", "tool calls and their results")
def tools() -> None:
    model = chat_model(saying(), SAYING).bind_tools([tool(weather)])
    messages: list[Any] = [HumanMessage(WEATHER_QUESTION)]
    messages.append(model.invoke(messages))
    (call,) = messages[-1].tool_calls
    equal((call["name"], call["args"]), ("weather", CITY))
    messages.append(ToolMessage(weather(**call["args"]), tool_call_id=call["id"]))
    equal(model.invoke(messages).content, WEATHER_ANSWER)
