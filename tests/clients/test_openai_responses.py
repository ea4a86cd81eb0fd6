"""OpenAI's own client, unmodified, with its responses."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, get_args

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import (
    CustomToolParam,
    FunctionToolParam,
    Response,
    ResponseIncludable,
    ResponseItem,
    ResponseStreamEvent,
    ResponseTextDeltaEvent,
    ToolSearchToolParam,
    response_create_params,
)
from pydantic import BaseModel, TypeAdapter

from lmi_handlers.fields.openai_tolerance import HINTS
from lmi_handlers.fields.openai_tolerance import REFUSED as REFUSED_EVERYWHERE
from lmi_handlers.responses.request import REFUSED, ResponsesRequest
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.responses.asking import CALL, PATH, TEXT, events

PROPERTIES = f"{SCRIPTED}option.tool_call_parser=hermes\noption.reasoning_parser=deepseek_r1\n"
THOUGHT = "<think>\nIt is hot there.\n</think>\n\n"
WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}
PATCH: CustomToolParam = {
    "type": "custom",
    "name": "apply_patch",
    "format": {"type": "grammar", "syntax": "regex", "definition": ".+"},
}
SEARCH: ToolSearchToolParam = {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}
EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
LOG_PROBS: Any = ["message.output_text.logprobs"]
DROPPED = {"access_programs", "context_management", "image"}  # as any field that nobody here knows


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES}))


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.server.url}/v1", api_key="any", max_retries=0) as client:
        yield client


async def test_text(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script(f"{THOUGHT}{TEXT}"))
    response = await client.responses.create(model="model", input="What is it?")
    assert (response.output_text, response.status) == (TEXT, "completed")
    assert response.usage is not None
    assert response.usage.output_tokens == 13


async def test_without_asyncio(server: RunningServer) -> None:
    server.scripted.enqueue(Script(f"{THOUGHT}Yes."), Script(f"{THOUGHT}Yes."))

    def ask() -> tuple[str, str]:
        with OpenAI(base_url=f"{server.server.url}/v1", api_key="any", max_retries=0) as client:
            whole = client.responses.create(model="model", input="What is it?")
            stream = client.responses.create(model="model", input="What is it?", stream=True)
            deltas = [event.delta for event in stream if isinstance(event, ResponseTextDeltaEvent)]
        return whole.output_text, "".join(deltas)

    assert await asyncio.to_thread(ask) == ("Yes.", "Yes.")


async def test_every_member_of_the_clients_response_is_there(server: RunningServer) -> None:
    answer = await server.post(PATH, {"input": "x"})
    assert Response.model_fields.keys() - answer.json().keys() == set()
    Response.model_validate(answer.json())


@pytest.mark.parametrize(
    "script",
    [
        Script(f"{THOUGHT}Let me see. {CALL} Done."),
        Script(f"{THOUGHT}Yes."),
        Script(CALL),
        Script("<think>cut", error="out of order"),
        Script(f"{THOUGHT}cut", error="out of order"),
        Script(tokens=[""]),
    ],
)
@pytest.mark.parametrize("limit", [2, 1000])
async def test_every_event_is_one_of_the_clients(server: RunningServer, script: Script, limit: int) -> None:
    server.scripted.enqueue(script)
    asked = {"input": "x", "stream": True, "tools": [WEATHER], "include": LOG_PROBS, "max_output_tokens": limit}
    for event in events(await server.post(PATH, asked)):
        assert EVENTS.validate_python(event).type == event["type"]


async def test_stream_helper_puts_the_answer_together(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script(f"{THOUGHT}Let me see. {CALL}"))
    async with client.responses.stream(
        model="model", input="Weather?", tools=[WEATHER], include=LOG_PROBS, top_logprobs=2
    ) as stream:
        snapshots = [event.snapshot async for event in stream if event.type == "response.output_text.delta"]
        streamed = await stream.get_final_response()
    assert snapshots[-1] == streamed.output_text == "Let me see."
    whole = await client.responses.retrieve(streamed.id)
    assert whole.status == "completed"
    parsed = {"parsed", "parsed_arguments"}
    assert without(streamed.to_dict(), parsed) == without(whole.to_dict(), parsed)


def without(value: Any, names: set[str]) -> Any:
    if isinstance(value, list):
        return [without(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: without(each, names) for name, each in value.items() if name not in names}


async def test_stream_that_is_cut(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script(f"{THOUGHT}one two three"))
    async with client.responses.stream(model="model", input="x", max_output_tokens=8) as stream:
        kinds = [event.type async for event in stream]
    assert kinds[-1] == "response.incomplete"


async def test_loop_of_tools(server: RunningServer, client: AsyncOpenAI) -> None:
    """The items of an answer go back as they came, with the result, in one conversation."""
    server.scripted.enqueue(Script(f"{THOUGHT}{CALL}"), Script("<think>so</think>It is sunny."))
    items: list[Any] = [{"role": "user", "content": "Weather?"}]
    first = await client.responses.create(model="model", input=items, tools=[WEATHER])
    items += first.output
    (call,) = (item for item in first.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"city": "Paris"}
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
    second = await client.responses.create(model="model", input=items, tools=[WEATHER])
    assert second.output_text == "It is sunny."
    assert server.scripted.history[-1].prompt.endswith("tool: sunny\nassistant:")


async def test_custom_tool(server: RunningServer, client: AsyncOpenAI) -> None:
    called = '<tool_call>{"name": "apply_patch", "arguments": {"input": "one \\"two\\"\\n"}}</tool_call>'
    server.scripted.enqueue(Script(f"{THOUGHT}{called}"), Script("<think>so</think>Done."))
    items: list[Any] = [{"role": "user", "content": "Edit it."}]
    async with client.responses.stream(model="model", input=items, tools=[PATCH]) as stream:
        deltas = [event.delta async for event in stream if event.type == "response.custom_tool_call_input.delta"]
        first = await stream.get_final_response()
    (call,) = (item for item in first.output if item.type == "custom_tool_call")
    assert call.input == "".join(deltas) == 'one "two"\n'
    items += [*first.output, {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "edited"}]
    choice: Any = {"type": "custom", "name": "apply_patch"}
    second = await client.responses.create(model="model", input=items, tools=[PATCH])
    assert second.output_text == "Done."
    assert server.scripted.history[-1].prompt.endswith("tool: edited\nassistant:")
    assert [tool.to_dict() for tool in second.tools] == [PATCH]
    server.scripted.enqueue(Script(THOUGHT + '{"input": "three"}'))
    third = await client.responses.create(model="model", input=items, tools=[PATCH], tool_choice=choice)
    assert third.output[-1].to_dict().items() >= {"type": "custom_tool_call", "input": "three"}.items()


async def test_search_for_tools(server: RunningServer, client: AsyncOpenAI) -> None:
    called = '<tool_call>{"name": "tool_search", "arguments": {"query": "weather"}}</tool_call>'
    server.scripted.enqueue(Script(f"{THOUGHT}{called}"), Script(f"{THOUGHT}{CALL}"))
    items: list[Any] = [{"role": "user", "content": "Weather?"}]
    async with client.responses.stream(model="model", input=items, tools=[SEARCH]) as stream:
        first = await stream.get_final_response()
    (search,) = (item for item in first.output if item.type == "tool_search_call")
    assert (search.execution, search.arguments) == ("client", {"query": "weather"})
    found = {"type": "tool_search_output", "call_id": search.call_id, "execution": "client", "tools": [WEATHER]}
    items += [*first.output, found]
    second = await client.responses.create(model="model", input=items, tools=[SEARCH])
    (call,) = (item for item in second.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})


async def test_conversation_on_the_server(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script("<think>a</think>one"), Script("<think>b</think>two"))
    first = await client.responses.create(model="model", input="first")
    second = await client.responses.create(model="model", input="second", previous_response_id=first.id)
    assert server.scripted.history[-1].prompt == "user: first\nassistant: one\nuser: second\nassistant:"
    items = [item async for item in client.responses.input_items.list(second.id, limit=1, order="asc")]
    assert [item.type for item in items] == ["message", "reasoning", "message", "message"]
    for item in items:
        TypeAdapter[Any](ResponseItem).validate_python(item.to_dict())
    assert (await client.responses.retrieve(first.id)).output_text == "one"
    await client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError) as gone:
        await client.responses.create(model="model", input="third", previous_response_id=first.id)
    assert (gone.value.code, gone.value.param) == ("previous_response_not_found", "previous_response_id")
    with pytest.raises(openai.BadRequestError):
        await client.responses.cancel(second.id)


class Answer(BaseModel):
    text: str


async def test_parsed_answer(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script('<think>hm</think>{"text": "yes"}'), Script('<think>hm</think>{"text": "yes"}'))
    response = await client.responses.parse(model="model", input="x", text_format=Answer)
    assert response.output_parsed == Answer(text="yes")
    parameters: Any = server.scripted.history[-1].parameters
    assert parameters.guided_json["required"] == ["text"]
    async with client.responses.stream(model="model", input="x", text_format=Answer) as stream:
        assert (await stream.get_final_response()).output_parsed == Answer(text="yes")


async def test_parsed_call(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script(f"{THOUGHT}{CALL}"))

    class weather(BaseModel):
        city: str

    tool: Any = openai.pydantic_function_tool(weather)
    flat: Any = {"type": "function", **tool["function"]}
    response = await client.responses.parse(model="model", input="x", tools=[flat])
    (call,) = (item for item in response.output if item.type == "function_call")
    assert call.parsed_arguments == {"city": "Paris"}


async def test_reasoning(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script(f"{THOUGHT}Yes."))
    response = await client.responses.create(
        model="model", input="x", reasoning={"effort": "high", "summary": "auto"}, store=False,
        include=["reasoning.encrypted_content"],
    )  # fmt: skip
    reasoning = response.output[0]
    assert reasoning.type == "reasoning"
    assert reasoning.content is not None
    assert [part.text for part in reasoning.content] == ["It is hot there."]
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == 6
    again: Any = [*response.output, {"role": "user", "content": "And now?"}]
    await client.responses.create(model="model", input=again, store=False)


async def test_count_of_tokens(client: AsyncOpenAI) -> None:
    counted = await client.responses.input_tokens.count(model="model", input="What is it?")
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", 5)


async def test_failure(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script("<think>hm", error="out of order"))
    stream = await client.responses.create(model="model", input="x", stream=True)
    *_, error, failed = [event async for event in stream]
    assert (error.type, failed.type) == ("error", "response.failed")
    with pytest.raises(openai.BadRequestError) as refused:
        await client.responses.create(model="model", input="x", tools=[{"type": "web_search"}])
    assert refused.value.param == "tools"


def test_every_field_of_the_client_is_known() -> None:
    known = ResponsesRequest.model_fields.keys() | HINTS | REFUSED.keys() | REFUSED_EVERYWHERE.keys()
    theirs = response_create_params.ResponseCreateParamsBase.__annotations__.keys()
    assert theirs - known == DROPPED


def test_every_value_of_include_is_known() -> None:
    field = ResponsesRequest.model_json_schema()["properties"]["include"]
    assert set(get_args(ResponseIncludable)) == set(field["anyOf"][0]["items"]["enum"])
