"""LangChain's models of Hugging Face's inference clients."""

from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_huggingface import ChatHuggingFace, HuggingFaceEndpoint

from tests.clients.programs.cases import case, equal, hello, saying
from tests.clients.programs.values import ANSWER, CITY, FIRST_TEXT, QUESTION, WEATHER_ANSWER, WEATHER_QUESTION, weather

PACKAGE = "langchain-huggingface"


def endpoint(url: str = "", **options: Any) -> Any:
    return HuggingFaceEndpoint(endpoint_url=url or hello(), huggingfacehub_api_token="any", do_sample=False, **options)


@case("TGI", "answers")
def generate() -> None:
    equal(endpoint(max_new_tokens=64).invoke(QUESTION), ANSWER)
    equal(endpoint(max_new_tokens=4).invoke(QUESTION), FIRST_TEXT)


@case("TGI", "streams")
def generate_stream() -> None:
    equal("".join(endpoint(max_new_tokens=64).stream(QUESTION)), ANSWER)


@case("TGI", "asyncio")
async def generate_asyncio() -> None:
    equal(await endpoint(max_new_tokens=64).ainvoke(QUESTION), ANSWER)
    equal("".join([text async for text in endpoint(max_new_tokens=64).astream(QUESTION)]), ANSWER)


@case("OpenAI chats", "answers")
def chat() -> None:
    model: Any = ChatHuggingFace(llm=endpoint(), model_id="hello")
    equal(model.invoke(QUESTION).content, ANSWER)


@case("OpenAI chats", "streams")
def chat_stream() -> None:
    model: Any = ChatHuggingFace(llm=endpoint(), model_id="hello")
    equal("".join(chunk.content for chunk in model.stream(QUESTION)), ANSWER)


@case("OpenAI chats", "tool calls and their results")
def tools() -> None:
    model: Any = ChatHuggingFace(llm=endpoint(saying()), model_id="saying").bind_tools([tool(weather)])
    messages: list[Any] = [HumanMessage(WEATHER_QUESTION)]
    messages.append(model.invoke(messages))
    (call,) = messages[-1].tool_calls
    equal((call["name"], call["args"]), ("weather", CITY))
    messages.append(ToolMessage(weather(**call["args"]), tool_call_id=call["id"]))
    equal(model.invoke(messages).content, WEATHER_ANSWER)
