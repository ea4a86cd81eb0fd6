"""Anthropic's own client, unmodified, against this server."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import MessageParam, ToolParam, message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_params
from pydantic import BaseModel

from lmi_handlers.anthropic.payload import CountTokensRequest, MessagesRequest
from lmi_handlers.anthropic.tolerance import HINTS, REFUSED
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.anthropic.asking import CALL, TEXT
from tests.handlers.chat.test_images import PROPERTIES as SEEING
from tests.handlers.chat.test_images import SeeingPlugin

PROPERTIES = f"{SCRIPTED}option.tool_call_parser=hermes\noption.reasoning_parser=qwen3\n"
QUESTION: list[MessageParam] = [{"role": "user", "content": "What is it?"}]
WEATHER: ToolParam = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
THOUGHT = "<think>\nLet me see.\n</think>\n\n"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES}))


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[AsyncAnthropic]:
    async with client_of(server) as client:
        yield client


def client_of(server: RunningServer) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=server.server.url, api_key="any", max_retries=0)


async def test_message(client: AsyncAnthropic) -> None:
    answer = await client.messages.create(model="model", max_tokens=64, messages=QUESTION, system="Be kind.")
    assert [block.text for block in answer.content if block.type == "text"] == [TEXT]
    assert (answer.stop_reason, answer.stop_sequence, answer.model) == ("end_turn", None, "model")
    assert (answer.usage.output_tokens, answer.usage.cache_read_input_tokens) == (7, 0)
    assert answer.id == f"msg_{answer._request_id}"


async def test_blocking_client(server: RunningServer) -> None:
    def ask() -> tuple[str, str]:
        with anthropic.Anthropic(base_url=server.server.url, api_key="any", max_retries=0) as client:
            with client.messages.stream(model="model", max_tokens=64, messages=QUESTION) as stream:
                streamed = "".join(stream.text_stream)
            whole = client.messages.create(model="model", max_tokens=64, messages=QUESTION)
            return streamed, "".join(block.text for block in whole.content if block.type == "text")

    assert await asyncio.to_thread(ask) == (TEXT, TEXT)


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        (TEXT, {}),
        (TEXT, {"max_tokens": 2}),
        (TEXT, {"stop_sequences": [" is a"]}),
        (THOUGHT + "Yes.", {}),
        (THOUGHT, {}),
        (f"{THOUGHT}Let me see. {CALL}{CALL}", {"tools": [WEATHER]}),
        (CALL, {"tools": [WEATHER], "max_tokens": 3}),
        ('{"city": "Paris"}', {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "weather"}}),
    ],
)
async def test_final_message_of_a_stream_is_the_whole_message(
    server: RunningServer, client: AsyncAnthropic, said: str, fields: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {"model": "model", "max_tokens": 64, "messages": QUESTION, **fields}
    asked["extra_headers"] = {"x-request-id": "one"}
    server.scripted.enqueue(Script(said), Script(said), Script(said))
    whole = (await client.messages.create(**asked)).to_dict()
    async with client.messages.stream(**asked) as stream:
        final = (await stream.get_final_message()).to_dict()
    assert without_ids(final) == without_ids(whole)
    raw = [event async for event in await client.messages.create(**asked, stream=True)]
    assert (raw[0].type, raw[-2].type, raw[-1].type) == ("message_start", "message_delta", "message_stop")


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message without the random ids of uses of tools, and without what the client itself adds."""
    content = []
    for block in message["content"]:
        if block["type"] == "tool_use":
            assert block["id"].startswith("toolu_")
        kept = {name: value for name, value in block.items() if name not in ("id", "parsed_output")}
        content.append(kept)
    return message | {"content": content}


async def test_events_of_a_stream(server: RunningServer, client: AsyncAnthropic) -> None:
    """Each is one that the client knows, of the type that it has for it."""
    server.scripted.enqueue(Script(tokens=["<think>", "So", "</think>", "Well. ", CALL]))
    async with client.messages.stream(model="model", max_tokens=64, messages=QUESTION, tools=[WEATHER]) as stream:
        found = [event async for event in stream]
    assert [event.type for event in found if event.type not in ("message_start", "content_block_delta")] == [
        "content_block_start",
        "thinking",
        "signature",
        "content_block_stop",
        "content_block_start",
        "text",
        "content_block_stop",
        "content_block_start",
        *["input_json"] * sum(event.type == "input_json" for event in found),
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    for event in found:
        type(event).model_validate(event.model_dump())


async def test_tool_use_and_its_result(server: RunningServer, client: AsyncAnthropic) -> None:
    server.scripted.enqueue(Script(THOUGHT + CALL), Script("Sunny."))
    asked: dict[str, Any] = {"model": "model", "max_tokens": 64, "tools": [WEATHER]}
    answer = await client.messages.create(messages=QUESTION, **asked)
    thinking, use = answer.content
    assert (thinking.type, use.type, answer.stop_reason) == ("thinking", "tool_use", "tool_use")
    assert (use.name, use.input) == ("weather", {"city": "Paris"})
    result: MessageParam = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}],
    }
    answer = await client.messages.create(messages=[*QUESTION, answer.to_param(), result], **asked)
    assert [block.text for block in answer.content if block.type == "text"] == ["Sunny."]
    assert server.scripted.history[-1].prompt.endswith("tool: sunny\nassistant:")


async def test_tool_runner(server: RunningServer, client: AsyncAnthropic) -> None:
    @anthropic.beta_async_tool
    async def weather(city: str) -> str:
        """Tell the weather of a city."""
        return f"{city}: sunny"

    server.scripted.enqueue(Script(CALL), Script("Sunny."))
    runner = client.beta.messages.tool_runner(model="model", max_tokens=64, messages=QUESTION, tools=[weather])  # type: ignore[arg-type]
    answer = await runner.until_done()
    assert [block.text for block in answer.content if block.type == "text"] == ["Sunny."]
    assert "tool: Paris: sunny\n" in server.scripted.history[-1].prompt


class City(BaseModel):
    city: str


async def test_parsed_output(server: RunningServer, client: AsyncAnthropic) -> None:
    server.scripted.enqueue(Script('{"city": "Paris"}'))
    answer = await client.messages.parse(model="model", max_tokens=64, messages=QUESTION, output_format=City)
    assert answer.parsed_output == City(city="Paris")


async def test_thinking_budget(server: RunningServer, client: AsyncAnthropic) -> None:
    server.scripted.enqueue(Script(f"{THOUGHT}Yes."))
    answer = await client.messages.create(
        model="model",
        max_tokens=2000,
        messages=QUESTION,
        thinking={"type": "enabled", "budget_tokens": 1024},
        extra_headers={"x-request-id": "one"},
    )
    assert answer.content[0].to_dict() == {"type": "thinking", "thinking": "Let me see.", "signature": "msg_one"}
    assert answer.usage.output_tokens_details is not None
    assert answer.usage.output_tokens_details.thinking_tokens == 5
    await client.messages.create(model="model", max_tokens=64, messages=[*QUESTION, answer.to_param(), *QUESTION])
    assert "assistant: Yes.\n" in server.scripted.history[-1].prompt


async def test_image(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SEEING}), plugins=[SeeingPlugin()])
    data = base64.b64encode(b"image").decode()
    async with client_of(server) as client:
        await client.messages.create(
            model="model",
            max_tokens=64,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
                        {"type": "text", "text": "What is it?"},
                    ],
                }
            ],
        )
    found = server.scripted.history[-1].image_prompt
    assert found is not None
    assert found.content == [b"image"]


async def test_count_tokens(client: AsyncAnthropic) -> None:
    counted = await client.messages.count_tokens(model="model", messages=QUESTION, tools=[WEATHER], system="Be kind.")
    answer = await client.messages.create(
        model="model", max_tokens=64, messages=QUESTION, tools=[WEATHER], system="Be kind."
    )
    assert counted.input_tokens == answer.usage.input_tokens > 0


async def test_models(client: AsyncAnthropic) -> None:
    (model,) = [model async for model in client.models.list(limit=1)]
    assert (model.id, model.max_input_tokens, model.created_at.tzinfo is not None) == ("model", 2048, True)
    assert (await client.models.retrieve("model")).id == "model"
    with pytest.raises(anthropic.NotFoundError):
        await client.models.retrieve("mudel")


async def test_errors(server: RunningServer, client: AsyncAnthropic) -> None:
    async def ask(**fields: Any) -> None:
        await client.messages.create(**{"model": "model", "max_tokens": 64, "messages": QUESTION, **fields})

    with pytest.raises(anthropic.NotFoundError) as missing:
        await ask(model="mudel", extra_headers={"x-request-id": "one"})
    assert (missing.value.type, missing.value.request_id) == ("not_found_error", "one")
    with pytest.raises(anthropic.BadRequestError) as wrong:
        await ask(max_tokens=-1)
    assert wrong.value.type == "invalid_request_error"
    assert wrong.value.api_message == "`max_tokens` must be greater than or equal to 1. Given: -1"
    server.scripted.enqueue(Script(error="no memory"))
    with pytest.raises(anthropic.InternalServerError) as failed:
        await ask()
    assert (failed.value.type, failed.value.api_message) == ("api_error", "no memory")


async def test_error_within_a_stream(server: RunningServer, client: AsyncAnthropic) -> None:
    server.scripted.enqueue(Script("one two", error="no memory"))
    stream = await client.messages.create(model="model", max_tokens=64, messages=QUESTION, stream=True)
    with pytest.raises(anthropic.APIStatusError) as failed:
        async for _ in stream:
            pass
    assert (failed.value.type, failed.value.api_message) == ("api_error", "no memory")


async def test_leaving_a_stream_aborts_the_request(server: RunningServer, client: AsyncAnthropic) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    async with client.messages.stream(model="model", max_tokens=64, messages=QUESTION) as stream:
        await anext(aiter(stream.text_stream))
    await script.closed.wait()


async def test_beta_fields(server: RunningServer, client: AsyncAnthropic) -> None:
    asked: dict[str, Any] = {
        "betas": ["context-management-2025-06-27"],
        "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]},
        "service_tier": "auto",
        "metadata": {"user_id": "me"},
        "cache_control": {"type": "ephemeral"},
    }
    create = client.beta.messages.with_raw_response.create
    answer = await create(model="model", max_tokens=64, messages=[{"role": "user", "content": "Hi"}], **asked)
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "context_management"
    assert (await answer.parse()).stop_reason == "end_turn"


def test_every_field_of_the_client_is_known() -> None:
    others = HINTS | REFUSED.keys() | {"compaction", "context_management"}  # the latter are ignored as unknown ones
    in_headers = {"betas", "user_profile_id", "workspace_id"}
    for fields, payload in (
        (message_create_params.MessageCreateParamsBase, MessagesRequest),
        (message_count_tokens_params.MessageCountTokensParams, CountTokensRequest),
        (beta_params.MessageCreateParamsBase, MessagesRequest),
    ):
        assert fields.__annotations__.keys() - payload.model_fields.keys() - others - in_headers == set()
