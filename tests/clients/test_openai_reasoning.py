"""OpenAI's own client, unmodified, with a model that reasons, and with every field that it knows of."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.types import completion_create_params
from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat import completion_create_params as chat_params

from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.completions.request import CompletionRequest
from lmi_handlers.fields.openai_tolerance import HINTS, REFUSED
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Is 17 prime?"}]
PROPERTIES = f"{SCRIPTED}option.reasoning_parser=deepseek_r1\noption.served_model_name=r1\n"
SAID = "<think>\nOnly 1 and 17 divide it.\n</think>\n\nYes, it is."
STREAM = {"stream"}  # of the types for calls with and without it


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES}))


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.server.url}/v1", api_key="any", max_retries=0) as client:
        yield client


async def test_reasoning(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script(SAID))
    answer = await client.chat.completions.create(model="r1", messages=QUESTION, reasoning_effort="high")
    message: Any = answer.choices[0].message
    assert (message.content, message.reasoning_content) == ("Yes, it is.", "Only 1 and 17 divide it.")
    assert answer.model == "r1"
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.reasoning_tokens == 8
    await client.chat.completions.create(model="r1", messages=[*QUESTION, message, *QUESTION])
    assert "assistant: Yes, it is.\n" in server.scripted.history[-1].prompt


async def test_reasoning_of_a_stream(server: RunningServer, client: AsyncOpenAI) -> None:
    server.scripted.enqueue(Script(tokens=list(SAID)))
    async with client.chat.completions.stream(model="r1", messages=QUESTION) as stream:
        answer = await stream.get_final_completion()
    message: Any = answer.choices[0].message
    assert (message.content, message.reasoning_content) == ("Yes, it is.", "Only 1 and 17 divide it.")


async def test_every_delta_has_the_member_for_reasoning(server: RunningServer, client: AsyncOpenAI) -> None:
    """DeepSeek's documented loop reads it without asking whether it is there."""
    server.scripted.enqueue(Script(tokens=list(SAID)))
    thought = said = ""
    async for chunk in await client.chat.completions.create(model="r1", messages=QUESTION, stream=True):
        delta: Any = chunk.choices[0].delta
        if delta.reasoning_content:
            thought += delta.reasoning_content
        else:
            said += delta.content
    assert (thought, said) == ("Only 1 and 17 divide it.", "Yes, it is.")


async def test_fields_that_ask_for_nothing_here(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.with_raw_response.create(
        model="r1",
        messages=QUESTION,
        store=True,
        metadata={"a": "b"},
        service_tier="flex",
        modalities=["text"],
        parallel_tool_calls=True,
        prediction={"type": "content", "content": "Yes."},
        prompt_cache_key="key",
        safety_identifier="me",
        verbosity="low",
        web_search_options={},
        extra_body={"top_k": 3, "cache_salt": "salt"},
    )
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "web_search_options"
    assert answer.parse().choices[0].finish_reason == "stop"


def test_every_field_of_the_client_is_known() -> None:
    others = HINTS | REFUSED.keys() | {"web_search_options"}  # the latter is ignored as an unknown one
    chats = chat_params.CompletionCreateParamsBase.__annotations__.keys()
    assert chats - STREAM - ChatRequest.model_fields.keys() - others == set()
    completions = completion_create_params.CompletionCreateParamsBase.__annotations__.keys()
    assert completions - STREAM - CompletionRequest.model_fields.keys() - others == set()
