"""Ollama's own client, unmodified, against this server."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from ollama import AsyncClient, Client, ResponseError
from pydantic import BaseModel

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.chat.test_images import SeeingPlugin

TEXT = "Deep Learning is a really cool field."
WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
QUESTION = [{"role": "user", "content": "What is it?"}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
THOUGHT = "<think>\nLet me see.\n</think>\n\nYes, it is."
PROPERTIES = f"{SCRIPTED}option.tool_call_parser=hermes\noption.reasoning_parser=qwen3\n"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES}))


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.server.url) as client:
        yield client


@pytest.fixture
def blocking(server: RunningServer) -> Iterator[Client]:
    """Return a client for use in a thread: the server runs in this one."""
    with Client(server.server.url) as client:
        yield client


def weather(city: str) -> str:
    """Tell the weather.

    Args:
        city: The city.
    """
    return f"sunny in {city}"


class City(BaseModel):
    name: str


async def test_chat(client: AsyncClient) -> None:
    answer = await client.chat("model", QUESTION)
    assert (answer.message.content, answer.done_reason, answer.eval_count) == (TEXT, "stop", 7)
    assert answer.total_duration is not None
    assert answer.eval_duration is not None
    assert 0 < answer.eval_duration < answer.total_duration


async def test_stream_of_a_chat(client: AsyncClient) -> None:
    parts = [part async for part in await client.chat("model:latest", QUESTION, stream=True)]
    assert [part.message.content for part in parts] == [*WORDS, ""]
    assert [part.done for part in parts] == [False] * 7 + [True]
    assert parts[-1].eval_count == 7


async def test_generate(client: AsyncClient) -> None:
    whole = await client.generate("model", "What is it?", system="Be brief.", options={"num_predict": 2, "seed": 7})
    assert (whole.response, whole.done_reason) == ("Deep Learning", "length")
    stream = await client.generate("model", "What is it?", raw=True, stream=True)
    assert "".join([part.response or "" async for part in stream]) == TEXT


async def test_without_asyncio(blocking: Client) -> None:
    def ask() -> list[str | None]:
        chat = "".join(part.message.content or "" for part in blocking.chat("model", QUESTION, stream=True))
        text = "".join(part.response or "" for part in blocking.generate("model", "Hi", stream=True))
        return [chat, text, blocking.chat("model", QUESTION).message.content, blocking.generate("model", "Hi").response]

    assert await asyncio.to_thread(ask) == [TEXT] * 4


@pytest.mark.parametrize("stream", [False, True])
async def test_tools(server: RunningServer, client: AsyncClient, stream: bool) -> None:
    server.scripted.enqueue(Script(CALL))
    if stream:
        parts = [part async for part in await client.chat("model", QUESTION, tools=[weather], stream=True)]
        (message,) = [part.message for part in parts if part.message.tool_calls]
    else:
        message = (await client.chat("model", QUESTION, tools=[weather])).message
    (call,) = message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Paris"})
    result = {"role": "tool", "tool_name": call.function.name, "content": weather(**call.function.arguments)}
    answer = await client.chat("model", [*QUESTION, message, result], tools=[weather])
    assert answer.message.content == TEXT
    assert server.scripted.history[-1].prompt.endswith("tool: sunny in Paris\nassistant:")


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking(server: RunningServer, client: AsyncClient, stream: bool) -> None:
    server.scripted.enqueue(Script(THOUGHT))
    if stream:
        messages = [part.message async for part in await client.chat("model", QUESTION, think=True, stream=True)]
    else:
        messages = [(await client.chat("model", QUESTION, think=True)).message]
    assert "".join(message.thinking or "" for message in messages).strip() == "Let me see."
    assert "".join(message.content or "" for message in messages).strip() == "Yes, it is."


async def test_structured_output(server: RunningServer, client: AsyncClient) -> None:
    server.scripted.enqueue(Script('{"name": "Paris"}'))
    answer = await client.chat("model", QUESTION, format=City.model_json_schema())
    assert City.model_validate_json(answer.message.content or "").name == "Paris"


async def test_log_probs(client: AsyncClient) -> None:
    answer = await client.generate("model", "Hi", logprobs=True, top_logprobs=2)
    assert answer.logprobs is not None
    assert [place.token for place in answer.logprobs] == WORDS
    assert [len(place.top_logprobs or ()) for place in answer.logprobs] == [2] * 7


async def test_image(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": "option.rolling_batch=seeing\n"}), plugins=[SeeingPlugin()])
    async with AsyncClient(server.server.url) as client:
        chat = await client.chat("model", [QUESTION[0] | {"images": [b"image"]}])
        generated = await client.generate("model", "What?", images=[b64encode(b"image").decode()])
    assert (chat.message.content, generated.response) == (TEXT, TEXT)
    assert [each.image_prompt is not None for each in server.scripted.history] == [True, True]


async def test_models(client: AsyncClient) -> None:
    (listed,) = (await client.list()).models
    (running,) = (await client.ps()).models
    shown = await client.show("model")
    assert (listed.model, running.name, running.context_length) == ("model:latest", "model:latest", 2048)
    assert (listed.digest, listed.size) == (running.digest, running.size)
    assert shown.capabilities == ["completion", "tools", "thinking"]
    assert shown.modelinfo is not None
    assert shown.modelinfo[f"{shown.modelinfo['general.architecture']}.context_length"] == 2048


async def test_pull_before_asking(client: AsyncClient) -> None:
    assert (await client.pull("model")).status == "success"
    assert [part.status async for part in await client.pull("model", stream=True)] == ["pulling manifest", "success"]


async def test_load_and_unload(client: AsyncClient) -> None:
    assert (await client.generate("model")).done_reason == "load"
    assert (await client.generate("model", keep_alive=0)).done_reason == "unload"
    assert (await client.chat("model")).done_reason == "load"


REFUSED: dict[str, tuple[Callable[[AsyncClient], Awaitable[object]], int, str]] = {
    "unknown model": (lambda client: client.chat("other", QUESTION), 404, "model 'other' not found"),
    "option": (
        lambda client: client.generate("model", "Hi", options={"temperature": -1}),
        400,
        "`options.temperature` must be greater than or equal to 0. Given: -1.0",
    ),
    "embeddings": (lambda client: client.embed("model", "Hi"), 400, "this model does not support embeddings"),
    "deletion": (lambda client: client.delete("model"), 403, "this server deletes no models"),
    "copy": (lambda client: client.copy("model", "other"), 403, "this server copies no models"),
    "creation": (lambda client: client.create("other", from_="model"), 403, "this server creates no models"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_errors(client: AsyncClient, name: str) -> None:
    ask, status, message = REFUSED[name]
    with pytest.raises(ResponseError) as raised:
        await ask(client)
    assert raised.value.status_code == status
    assert raised.value.error.startswith(message)


async def test_error_within_a_stream(server: RunningServer, client: AsyncClient) -> None:
    server.scripted.enqueue(Script("Deep", error="the engine fell over"))
    parts = await client.chat("model", QUESTION, stream=True)
    assert (await anext(parts)).message.content == "Deep"
    with pytest.raises(ResponseError, match="the engine fell over"):
        await anext(parts)


async def test_client_that_leaves(server: RunningServer, client: AsyncClient) -> None:
    script = Script("Deep", hold=True)
    server.scripted.enqueue(script)
    parts = await client.chat("model", QUESTION, stream=True)
    await anext(parts)
    await parts.aclose()  # type: ignore[attr-defined]
    await script.closed.wait()
