"""OpenAI's own client, unmodified, asking for embeddings."""

from collections.abc import AsyncIterator

import openai
import pytest
from openai import AsyncOpenAI

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + "option.task=text-embedding\n"}))


@pytest.fixture
async def client(server: RunningServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.server.url}/v1", api_key="any", max_retries=0) as client:
        yield client


async def test_texts(client: AsyncOpenAI) -> None:
    """The client asks for base64, where it is not told otherwise, and reads it."""
    texts = ["What is it?", "It is."]
    answer = await client.embeddings.create(model="model", input=texts)
    assert [(each.index, each.object, len(each.embedding)) for each in answer.data] == [
        (0, "embedding", 4),
        (1, "embedding", 4),
    ]
    assert [each.embedding[0] for each in answer.data] == [3, 2]
    assert (answer.model, answer.usage.prompt_tokens, answer.usage.total_tokens) == ("model", 5, 5)
    plain = await client.embeddings.create(model="model", input=texts, encoding_format="float")
    for ours, theirs in zip(plain.data, answer.data, strict=True):
        assert ours.embedding == pytest.approx(theirs.embedding)


async def test_token_ids_and_dimensions(client: AsyncOpenAI) -> None:
    known = await client.embeddings.create(model="model", input="What is it?")
    first = int(known.data[0].embedding[1])
    answer = await client.embeddings.create(model="model", input=[[first], [first, first]], dimensions=2, user="who")
    assert [each.embedding for each in answer.data] == [[1, first], [2, first]]


async def test_errors(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="makes embeddings and generates no text"):
        await client.chat.completions.create(model="model", messages=[{"role": "user", "content": "Hi"}])
    with pytest.raises(openai.BadRequestError, match="`dimensions` must be from 1 to 4") as error:
        await client.embeddings.create(model="model", input="a", dimensions=5)
    assert error.value.param == "dimensions"
    with pytest.raises(openai.BadRequestError, match="maximum context length is 2048 tokens"):
        await client.embeddings.create(model="model", input="a " * 3000)


async def test_a_model_that_only_generates(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    async with AsyncOpenAI(base_url=f"{server.server.url}/v1", api_key="any", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError, match="makes no embeddings on the scripted backend"):
            await client.embeddings.create(model="model", input="a")
