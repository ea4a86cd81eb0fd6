"""LangChain's models of OpenAI's API."""

from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_deepseek import ChatDeepSeek
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

from tests.clients.programs.cases import adapted, case, equal, fault, hello, saying
from tests.clients.programs.paint import PAINT, Paint
from tests.clients.programs.values import (
    ADAPTER,
    ANSWER,
    ANSWER_TOKENS,
    CHAT_TOKENS,
    CITY,
    FIRST_TOKENS,
    HELLO,
    QUESTION,
    SAYING,
    THINK_QUESTION,
    THOUGHT,
    WEATHER_ANSWER,
    WEATHER_QUESTION,
    weather,
)

PACKAGE = "langchain-openai"


def chat_model(url: str = "", model: str = HELLO, **options: Any) -> Any:
    return ChatOpenAI(base_url=f"{url or hello()}/v1", api_key="any", model=model, temperature=0, **options)


@case("OpenAI chats", "answers")
def chat() -> None:
    answer = chat_model().invoke(QUESTION)
    equal((answer.content, answer.response_metadata["finish_reason"]), (ANSWER, "stop"))
    usage = answer.usage_metadata
    equal((usage["input_tokens"], usage["output_tokens"]), (CHAT_TOKENS, ANSWER_TOKENS))


@case("OpenAI chats", "streams")
def chat_stream() -> None:
    chunks = list(chat_model(stream_usage=True).stream(QUESTION))
    equal("".join(chunk.content for chunk in chunks), ANSWER)
    total = sum(chunks[1:], start=chunks[0])
    equal(total.usage_metadata["output_tokens"], ANSWER_TOKENS)


@case("OpenAI chats", "asyncio")
async def chat_asyncio() -> None:
    model = chat_model()
    equal((await model.ainvoke(QUESTION)).content, ANSWER)
    equal("".join([chunk.content async for chunk in model.astream(QUESTION)]), ANSWER)
    equal([answer.content for answer in await model.abatch([QUESTION] * 3)], [ANSWER] * 3)


@case("OpenAI chats", "log probabilities")
def log_probabilities() -> None:
    answer = chat_model().bind(logprobs=True, top_logprobs=2).invoke(QUESTION)
    content = answer.response_metadata["logprobs"]["content"]
    equal(([token["token"] for token in content[:4]], len(content)), (FIRST_TOKENS, ANSWER_TOKENS))


@case("OpenAI chats", "structured outputs")
def structured() -> None:
    for method in ("json_schema", "function_calling"):
        model = chat_model(max_tokens=200).with_structured_output(Paint, method=method)
        equal(model.invoke(QUESTION), PAINT)


@case("OpenAI chats", "tool calls and their results")
def tools() -> None:
    model = chat_model(saying(), SAYING).bind_tools([tool(weather)])
    messages: list[Any] = [HumanMessage(WEATHER_QUESTION)]
    messages.append(model.invoke(messages))
    (call,) = messages[-1].tool_calls
    equal((call["name"], call["args"]), ("weather", CITY))
    messages.append(ToolMessage(weather(**call["args"]), tool_call_id=call["id"]))
    equal(model.invoke(messages).content, WEATHER_ANSWER)


@case("OpenAI chats", "streamed tool calls")
def tool_stream() -> None:
    chunks = list(chat_model(saying(), SAYING).bind_tools([tool(weather)]).stream(WEATHER_QUESTION))
    (call,) = sum(chunks[1:], start=chunks[0]).tool_calls
    equal((call["name"], call["args"]), ("weather", CITY))


@fault(
    "OpenAI chats",
    "`ChatOpenAI` leaves out `reasoning_content`, as OpenAI's own chats have none.",
    "Use langchain-deepseek's `ChatDeepSeek` with `api_base`, which is the same but for this.",
)
def reasoning() -> None:
    answer = chat_model(saying(), SAYING).invoke(THINK_QUESTION)
    equal((answer.content, answer.additional_kwargs.get("reasoning_content")), (ANSWER, None))
    equal(answer.usage_metadata["output_token_details"]["reasoning"], 6)
    other: Any = ChatDeepSeek(api_base=f"{saying()}/v1", api_key="any", model=SAYING)
    answer = other.invoke(THINK_QUESTION)
    equal((answer.content, answer.additional_kwargs.get("reasoning_content")), (ANSWER, THOUGHT))
    chunks = [chunk.additional_kwargs.get("reasoning_content") or "" for chunk in other.stream(THINK_QUESTION)]
    equal("".join(chunks), THOUGHT)


@case("OpenAI completions", "answers")
def completion() -> None:
    model = OpenAI(base_url=f"{hello()}/v1", api_key="any", model=HELLO, temperature=0)
    equal(model.invoke(QUESTION), ANSWER)


@case("OpenAI completions", "streams")
def completion_stream() -> None:
    model = OpenAI(base_url=f"{hello()}/v1", api_key="any", model=HELLO, temperature=0)
    equal("".join(model.stream(QUESTION)), ANSWER)


@case("OpenAI completions", "adapters")
def adapter() -> None:
    model = OpenAI(base_url=f"{hello()}/v1", api_key="any", model=ADAPTER, temperature=0, max_tokens=8)
    equal(model.invoke(QUESTION), adapted())


@case("OpenAI Responses", "answers")
def responses() -> None:
    answer = chat_model(use_responses_api=True).invoke(QUESTION)
    equal((answer.text, answer.usage_metadata["output_tokens"]), (ANSWER, ANSWER_TOKENS))


@case("OpenAI Responses", "streams")
def responses_stream() -> None:
    chunks = chat_model(use_responses_api=True).stream(QUESTION)
    equal("".join(chunk.text for chunk in chunks), ANSWER)


@case("OpenAI Responses", "tool calls and their results")
def responses_tools() -> None:
    model = chat_model(saying(), SAYING, use_responses_api=True).bind_tools([tool(weather)])
    messages: list[Any] = [HumanMessage(WEATHER_QUESTION)]
    messages.append(model.invoke(messages))
    (call,) = messages[-1].tool_calls
    messages.append(ToolMessage(weather(**call["args"]), tool_call_id=call["id"]))
    equal(model.invoke(messages).text, WEATHER_ANSWER)


@case("OpenAI embeddings", "vectors")
def embeddings() -> None:
    model = OpenAIEmbeddings(base_url=f"{hello()}/v1", api_key="any", model=HELLO, check_embedding_ctx_length=False)
    vectors = model.embed_documents([QUESTION, ANSWER])
    equal((len(vectors), vectors[0] == vectors[1]), (2, False))
    equal(model.embed_query(QUESTION), vectors[0])
