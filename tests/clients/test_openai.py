"""OpenAI's own client, unmodified, against this server."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.chat.said_calls import SAID

TEXT = "Deep Learning is a really cool field."
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is it?"}]
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TAGGED_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + "option.tool_call_parser=hermes\n"}))


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.server.url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
def blocking(server: RunningServer) -> Iterator[OpenAI]:
    """Yield a blocking client for use in another thread, as the server runs in this one."""
    with OpenAI(base_url=f"{server.server.url}/v1", api_key="any", max_retries=0) as client:
        yield client


async def test_chat(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="model", messages=QUESTION)
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 7


async def test_chat_without_asyncio(blocking: OpenAI) -> None:
    def ask() -> tuple[str | None, str]:
        whole = blocking.chat.completions.create(model="model", messages=QUESTION)
        stream = blocking.chat.completions.create(model="model", messages=QUESTION, stream=True)
        return whole.choices[0].message.content, "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    assert await asyncio.to_thread(ask) == (TEXT, TEXT)


async def test_chat_stream(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="model", messages=QUESTION, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "stop"]
    assert last.usage is not None
    assert last.usage.completion_tokens == 7


async def test_stream_helper_puts_the_answer_together(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model="model", messages=QUESTION, n=2, logprobs=True) as stream:
        answer = await stream.get_final_completion()
    assert [choice.message.content for choice in answer.choices] == [TEXT, TEXT]
    log_probs = answer.choices[0].logprobs
    assert log_probs is not None
    assert log_probs.content is not None
    assert len(log_probs.content) == 7


async def test_leaving_a_stream_aborts_the_request(server: RunningServer, client: AsyncOpenAI) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    stream = await client.chat.completions.create(model="model", messages=QUESTION, stream=True)
    await anext(aiter(stream))
    await stream.close()
    await script.closed.wait()


async def test_log_probabilities(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="model", messages=QUESTION, logprobs=True, top_logprobs=2)
    log_probs = answer.choices[0].logprobs
    assert log_probs is not None
    assert log_probs.content is not None
    first = log_probs.content[0]
    assert (first.token, bytes(first.bytes or []), len(first.top_logprobs)) == ("Deep", b"Deep", 2)


class Answer(BaseModel):
    text: str


async def test_parsed_answer(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script('{"text": "yes"}'))
    answer = await client.chat.completions.parse(model="model", messages=QUESTION, response_format=Answer)
    assert answer.choices[0].message.parsed == Answer(text="yes")


@pytest.mark.parametrize("choice", ["auto", {"name": "weather"}])
async def test_function_call_and_its_result(server: RunningServer, client: AsyncOpenAI, choice: Any) -> None:
    """The older form of tools, which the client still has."""
    said = TAGGED_CALL if choice == "auto" else '{"city": "Paris"}'
    server.scripted.enqueue(Script(said), Script("Sunny."), Script(said))
    functions: Any = [WEATHER["function"]]
    answer = await client.chat.completions.create(
        model="model", messages=QUESTION, functions=functions, function_call=choice
    )
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == ("function_call" if choice == "auto" else "stop")
    assert message.function_call is not None
    assert (message.function_call.name, json.loads(message.function_call.arguments)) == ("weather", {"city": "Paris"})
    past: list[Any] = [*QUESTION, message, {"role": "function", "name": "weather", "content": "sunny"}]
    answer = await client.chat.completions.create(model="model", messages=past, functions=functions)
    assert answer.choices[0].message.content == "Sunny."
    assert server.scripted.history[-1].prompt.endswith("tool: sunny\nassistant:")
    async with client.chat.completions.stream(
        model="model", messages=QUESTION, functions=functions, function_call=choice
    ) as stream:
        streamed = (await stream.get_final_completion()).choices[0].message
    assert streamed.function_call == message.function_call


async def test_tool_call_and_its_result(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script(TAGGED_CALL))
    answer = await client.chat.completions.create(model="model", messages=QUESTION, tools=[WEATHER])
    assert answer.choices[0].finish_reason == "tool_calls"
    message = answer.choices[0].message
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Paris"})
    said: Any = message
    result: ChatCompletionMessageParam = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    answer = await client.chat.completions.create(model="model", messages=[*QUESTION, said, result], tools=[WEATHER])
    assert answer.choices[0].message.content == TEXT
    assert "tool: sunny" in server.scripted.history[-1].prompt


async def test_custom_tool(server: RunningServer, client: AsyncOpenAI) -> None:
    script = Script('<tool_call>{"name": "apply_patch", "arguments": {"input": "one \\"two\\""}}</tool_call>')
    server.scripted.enqueue(script, script)
    tool: Any = {"type": "custom", "custom": {"name": "apply_patch"}}
    message = (await client.chat.completions.create(model="model", messages=QUESTION, tools=[tool])).choices[0].message
    (call,) = message.tool_calls or []
    assert call.type == "custom"
    assert (call.custom.name, call.custom.input) == ("apply_patch", 'one "two"')
    stream = await client.chat.completions.create(model="model", messages=QUESTION, tools=[tool], stream=True)
    deltas = [delta.to_dict() async for chunk in stream for delta in chunk.choices[0].delta.tool_calls or []]
    texts: list[Any] = [delta["custom"] for delta in deltas]
    assert "".join(text["input"] for text in texts) == call.custom.input
    result: ChatCompletionMessageParam = {"role": "tool", "tool_call_id": call.id, "content": "edited"}
    said: Any = message
    await client.chat.completions.create(model="model", messages=[*QUESTION, said, result], tools=[tool])
    assert "tool: edited" in server.scripted.history[-1].prompt


async def test_tool_calls_of_a_stream(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script(f"Let me see. {TAGGED_CALL} {TAGGED_CALL}"))
    async with client.chat.completions.stream(model="model", messages=QUESTION, tools=[WEATHER]) as stream:
        answer = await stream.get_final_completion()
    message = answer.choices[0].message
    assert (message.content, answer.choices[0].finish_reason) == ("Let me see.", "tool_calls")
    assert message.tool_calls is not None
    assert [json.loads(call.function.arguments) for call in message.tool_calls] == [{"city": "Paris"}] * 2


@pytest.mark.parametrize("name", SAID)
async def test_tool_call_in_the_format_of_a_model(serve: Serve, model_dir: ModelDirectory, name: str) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + f"option.tool_call_parser={name}\n"}))
    server.scripted.enqueue(Script(SAID[name]), Script(SAID[name]))
    async with AsyncOpenAI(base_url=f"{server.server.url}/v1", api_key="any", max_retries=0) as client:
        whole = await client.chat.completions.create(model="model", messages=QUESTION, tools=[WEATHER])
        async with client.chat.completions.stream(model="model", messages=QUESTION, tools=[WEATHER]) as stream:
            streamed = await stream.get_final_completion()
    for choice in (whole.choices[0], streamed.choices[0]):
        calls = [call for call in choice.message.tool_calls or [] if call.type == "function"]
        assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
            ("weather", {"city": "Paris"})
        ]
        assert (choice.message.content, choice.finish_reason) == ("Let me see.", "tool_calls")


async def test_completion(client: AsyncOpenAI) -> None:
    answer = await client.completions.create(model="model", prompt=["a", "b"], logprobs=1, echo=True)
    assert [choice.text for choice in answer.choices] == ["a" + TEXT, "b" + TEXT]
    log_probs = answer.choices[0].logprobs
    assert log_probs is not None
    assert log_probs.token_logprobs is not None
    assert len(log_probs.token_logprobs) == 8


async def test_completion_stream(client: AsyncOpenAI) -> None:
    stream = await client.completions.create(model="model", prompt="a", stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks) == TEXT
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_models(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["model"]
    assert (await client.models.retrieve("model")).owned_by == "lmi"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("mudel")


async def test_unknown_model(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        await client.chat.completions.create(model="mudel", messages=QUESTION)
    assert raised.value.code == "model_not_found"


async def test_bad_request(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        await client.chat.completions.create(model="model", messages=QUESTION, temperature=3)
    assert (raised.value.param, raised.value.type) == ("temperature", "invalid_request_error")


async def test_prompt_longer_than_the_context(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        await client.completions.create(model="model", prompt="word " * 3000)
    assert raised.value.code == "context_length_exceeded"


async def test_engine_that_fails(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script("", error="the engine fell over"))
    with pytest.raises(openai.InternalServerError, match="the engine fell over"):
        await client.chat.completions.create(model="model", messages=QUESTION)


async def test_engine_that_fails_within_a_stream(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script("one", error="the engine fell over"))
    stream = await client.chat.completions.create(model="model", messages=QUESTION, stream=True)
    with pytest.raises(openai.APIError, match="the engine fell over"):
        _ = [chunk async for chunk in stream]


async def test_full_queue(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = "job_queue_size=1\noption.max_rolling_batch_size=1\nthrottle_error_http_code=429\n"
    server = await serve(model_dir({"serving.properties": SCRIPTED + properties}))
    scripts = [Script("one", hold=True), Script("one", hold=True)]
    server.scripted.enqueue(*scripts)
    async with AsyncOpenAI(base_url=f"{server.server.url}/v1", api_key="any", max_retries=0) as client:
        calls = [client.completions.create(model="model", prompt="a") for _ in scripts]
        waiting = [asyncio.create_task(call) for call in calls]
        await asyncio.gather(*(script.started.wait() for script in scripts))
        with pytest.raises(openai.RateLimitError):
            await client.completions.create(model="model", prompt="a")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
