"""Clients, unmodified, that read over the comments of `option.sse_keep_alive_interval`."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import pytest
from anthropic import AsyncAnthropic
from huggingface_hub import AsyncInferenceClient
from openai import AsyncOpenAI

from lmi_handlers.http.exchange import KEEP_ALIVE
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

TEXT = "one two"
QUESTION = "What is it?"
INTERVAL = 0.02  # seconds

Ask = Callable[[str], Coroutine[Any, Any, str]]


async def openai_chat(url: str) -> str:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        stream = await client.chat.completions.create(
            model="model", messages=[{"role": "user", "content": QUESTION}], stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def openai_response(url: str) -> str:
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        stream = await client.responses.create(model="model", input=QUESTION, stream=True)
        return "".join([event.delta async for event in stream if event.type == "response.output_text.delta"])


async def anthropic_message(url: str) -> str:
    async with (
        AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client,
        client.messages.stream(
            model="model", max_tokens=64, messages=[{"role": "user", "content": QUESTION}]
        ) as stream,
    ):
        return await stream.get_final_text()


async def tgi_generation(url: str) -> str:
    async with AsyncInferenceClient(model=url) as client:
        return "".join([token async for token in await client.text_generation(QUESTION, stream=True)])


async def hub_chat(url: str) -> str:
    async with AsyncInferenceClient(base_url=f"{url}/v1") as client:
        stream = await client.chat_completion([{"role": "user", "content": QUESTION}], stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + f"option.sse_keep_alive_interval={INTERVAL}\n"}))


@pytest.mark.parametrize("ask", [openai_chat, openai_response, anthropic_message, tgi_generation, hub_chat])
async def test_comments_are_read_over(server: RunningServer, ask: Ask) -> None:
    prefilled = asyncio.Event()
    server.scripted.enqueue(Script(TEXT, prefilled=prefilled), Script(TEXT, prefilled=prefilled))
    chat = {"messages": [{"role": "user", "content": QUESTION}], "stream": True}
    async with aiohttp.ClientSession(server.server.url) as client, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(ask(server.server.url))
        async with client.post("/v1/chat/completions", json=chat) as response:  # which tells that comments are sent
            await response.content.readexactly(3 * len(KEEP_ALIVE))
            while len(server.scripted.history) < 2:
                await asyncio.sleep(INTERVAL)
            await response.content.readexactly(3 * len(KEEP_ALIVE))
            prefilled.set()
    assert asking.result() == TEXT
