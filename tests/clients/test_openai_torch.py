"""OpenAI's client and happy_vllm's routes on the torch engine: what needs its guided decoding and its sampler."""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

import aiohttp
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types import Completion
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageParam,
    ChatCompletionNamedToolChoiceParam,
    ChatCompletionToolParam,
)
from pydantic import BaseModel, Field

from tests.lmi_process import client_of

HELLO = Path(__file__).parents[2] / "examples" / "hello"
# hello's own, and a place for tools.
TEMPLATE = "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}" + (
    HELLO / "chat_template.jinja"
).read_text(encoding="utf-8")
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is Deep Learning?"}]
STORY: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Tell me a story."}]
ANSWER = "Deep Learning is a really cool field."
MODEL = "served"
COLOURS = ["red", "green", "blue"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Person(BaseModel):
    name: Annotated[str, Field(max_length=12)]
    age: Annotated[int, Field(ge=0, le=120)]
    likes: Literal["cats", "dogs"]


def tool(name: str, argument: str) -> ChatCompletionToolParam:
    parameters = {
        "type": "object",
        "properties": {argument: {"enum": COLOURS}},
        "required": [argument],
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


ARGUMENTS = {"paint": "colour", "mix": "with"}
TOOLS = [tool(name, argument) for name, argument in ARGUMENTS.items()]
NUMBER = {"type": "json_schema", "json_schema": {"type": "integer", "minimum": 10, "maximum": 12}}
TAGS: dict[str, Any] = {
    "type": "triggered_tags",
    "triggers": ["<n"],
    "tags": [{"type": "tag", "begin": "<n>", "content": NUMBER, "end": "</n>"}],
    "stop_after_first": True,
}
PAINT: ChatCompletionNamedToolChoiceParam = {"type": "function", "function": {"name": "paint"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[aiohttp.ClientSession]:
    directory = tmp_path_factory.mktemp("model") / MODEL
    directory.mkdir()
    (directory / "tools.jinja").write_text(TEMPLATE, encoding="utf-8")
    properties = f"option.model_id={HELLO}\noption.chat_template=tools.jinja\n"
    (directory / "serving.properties").write_text(properties, encoding="utf-8")
    async with client_of(directory) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(http: aiohttp.ClientSession) -> AsyncIterator[AsyncOpenAI]:
    async with http.get("/ping") as response:
        url = response.url.origin()
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield client


async def generate(http: aiohttp.ClientSession, path: str = "/v1/generate", **body: Any) -> list[dict[str, Any]]:
    """happy_vllm's answer, or the lines of it."""
    async with http.post(path, json={"prompt": "What is Deep Learning?", **body}) as response:
        assert response.status == 200, await response.text()
        return [json.loads(line) for line in (await response.read()).splitlines()]


async def test_json_schema(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.parse(model=MODEL, messages=QUESTION, response_format=Person)
    assert answer.choices[0].message.parsed is not None
    assert answer.choices[0].finish_reason == "stop"


async def test_json_schema_in_a_stream(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(model=MODEL, messages=QUESTION, response_format=Person) as stream:
        answer = await stream.get_final_completion()
    assert answer.choices[0].message.parsed is not None


async def test_json_object(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=QUESTION, response_format={"type": "json_object"}, temperature=0
    )
    assert isinstance(json.loads(answer.choices[0].message.content or ""), dict)


@pytest.mark.parametrize(
    ("guide", "pattern"),
    [
        ({"guided_choice": COLOURS}, "red|green|blue"),
        ({"guided_regex": "[0-9]{3}-[a-c]{2}"}, "[0-9]{3}-[a-c]{2}"),
        ({"guided_grammar": 'root ::= "yes" | "no"'}, "yes|no"),
        ({"guided_json": {"type": "integer", "minimum": 10, "maximum": 12}}, "1[0-2]"),
        ({"response_format": {"type": "structural_tag", "format": TAGS | {"at_least_one": True}}}, "<n>1[0-2]</n>"),
        ({"structured_outputs": {"structural_tag": json.dumps({"format": TAGS["tags"][0]})}}, "<n>1[0-2]</n>"),
    ],
)
async def test_guides(client: AsyncOpenAI, guide: dict[str, Any], pattern: str) -> None:
    chat = await client.chat.completions.create(model=MODEL, messages=QUESTION, extra_body=guide)
    assert re.fullmatch(pattern, chat.choices[0].message.content or "")
    text = await client.completions.create(model=MODEL, prompt="Hi", extra_body=guide)
    assert re.fullmatch(pattern, text.choices[0].text)


async def test_guide_that_cannot_be_followed(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model=MODEL, messages=QUESTION, extra_body={"guided_regex": "("})


async def test_required_tool_call(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=QUESTION, tools=TOOLS, tool_choice="required", parallel_tool_calls=False
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    assert json.loads(call.function.arguments)[ARGUMENTS[call.function.name]] in COLOURS
    assert answer.choices[0].finish_reason == "tool_calls"


async def test_named_tool_call_in_a_stream(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=QUESTION, tools=TOOLS, tool_choice=PAINT, stream=True
    )
    deltas = [call async for chunk in stream for call in chunk.choices[0].delta.tool_calls or ()]
    functions = [delta.function for delta in deltas if delta.function is not None]
    assert functions[0].name == "paint"
    assert json.loads("".join(function.arguments or "" for function in functions))["colour"] in COLOURS


async def test_several_choices(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=STORY, n=2, seed=1, max_tokens=40)
    first, second = [choice.message.content for choice in answer.choices]
    assert first != second
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 80


async def test_top_logprobs(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=QUESTION, temperature=0, logprobs=True, top_logprobs=20
    )
    log_probs = answer.choices[0].logprobs
    assert log_probs is not None
    assert answer.choices[0].message.content == ANSWER
    for place in log_probs.content or []:
        likeliest = place.top_logprobs[0]
        assert (likeliest.token, likeliest.logprob) == (place.token, place.logprob)
        assert len(place.top_logprobs) == 20
        assert sum(math.exp(top.logprob) for top in place.top_logprobs) <= 1 + 1e-6
    data = bytes(byte for place in log_probs.content or [] for byte in place.bytes or ())
    assert data.decode() == f"{ANSWER}<|end|>", "log probs are of every token, those that the text leaves out too"


def cached_tokens(answer: ChatCompletion | ChatCompletionChunk | Completion) -> int | None:
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    return answer.usage.prompt_tokens_details.cached_tokens


async def test_cached_tokens(client: AsyncOpenAI) -> None:
    """The engine keeps blocks of 16 tokens, and computes the last token of a prompt anew."""
    prompt = " ".join(["What is Deep Learning?"] * 8)
    answers = [await client.completions.create(model=MODEL, prompt=prompt, max_tokens=1) for _ in range(2)]
    assert answers[0].usage is not None
    length = answers[0].usage.prompt_tokens
    assert [cached_tokens(answer) for answer in answers] == [0, (length - 1) // 16 * 16]
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": f"Hear! {prompt}"}]
    counts = [
        cached_tokens(await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1, n=2))
        for _ in range(2)
    ]
    assert counts[0] in range(0, 17, 16), "the head of the template may be that of an earlier chat"
    assert counts[1] is not None
    assert counts[1] > 16


async def test_cached_tokens_in_streams(client: AsyncOpenAI) -> None:
    prompt = " ".join(["Tell me a story."] * 8)
    found: list[int | None] = []
    for _ in range(2):
        stream = await client.completions.create(
            model=MODEL, prompt=prompt, max_tokens=2, stream=True, stream_options={"include_usage": True}
        )
        found += [cached_tokens(chunk) for chunk in [each async for each in stream] if chunk.usage is not None]
    assert found[0] == 0
    assert found[1] is not None
    assert found[1] > 0
    chunks = await client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=2,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"continuous_usage_stats": True},
    )
    *_, last = [chunk async for chunk in chunks]
    assert cached_tokens(last) is not None


async def test_embeddings_of_the_model_that_chats(client: AsyncOpenAI) -> None:
    texts = ["What is Deep Learning?", "Tell me a story."]
    answer, chat = await asyncio.gather(
        client.embeddings.create(model=MODEL, input=texts),
        client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0),
    )
    assert chat.choices[0].message.content == ANSWER
    first, second = (each.embedding for each in answer.data)
    assert math.hypot(*first) == pytest.approx(1, abs=1e-5)
    (alone,) = (await client.embeddings.create(model=MODEL, input=texts[1], encoding_format="float")).data
    assert alone.embedding == pytest.approx(second, abs=1e-5)
    assert first != pytest.approx(second, abs=1e-2)


async def test_logit_bias(client: AsyncOpenAI, http: aiohttp.ClientSession) -> None:
    async with http.post("/v2/tokenizer", json={"prompt": ANSWER}) as response:
        first = (await response.json())["tokens"][0]
    answer = await client.completions.create(
        model=MODEL, prompt="What is Deep Learning?", temperature=0, logit_bias={str(first): -100}
    )
    assert not answer.choices[0].text.startswith("D")


async def test_response_pool(http: aiohttp.ClientSession) -> None:
    (answer,) = await generate(http, response_pool=COLOURS)
    assert answer["responses"][0] in COLOURS
    assert answer["finish_reasons"] == ["stop"]


@pytest.mark.parametrize("path", ["/v1/generate", "/v1/generate_stream"])
@pytest.mark.parametrize("max_tokens", [1, 3, 200])
async def test_response_pool_whatever_max_tokens_says(http: aiohttp.ClientSession, path: str, max_tokens: int) -> None:
    pool = ["an \u00fcberlanges item, of many more than sixteen tokens: \U0001f600\u4f60\u597d", "zq" * 40]
    for seed in range(3):
        *_, answer = await generate(http, path, response_pool=pool, max_tokens=max_tokens, seed=seed, n=2)
        assert set(answer["responses"]) <= set(pool)
        assert answer["finish_reasons"] == ["stop", "stop"]


async def test_simple_json_format(http: aiohttp.ClientSession) -> None:
    form = {"age": "integer", "fast": "boolean"}
    (answer,) = await generate(http, json_format=form, max_tokens=200, seed=1)
    found = json.loads(answer["responses"][0])
    assert {name: type(value) for name, value in found.items()} == {"age": int, "fast": bool}


async def test_json_format_as_schema_in_a_stream(http: aiohttp.ClientSession) -> None:
    schema = {"type": "object", "properties": {"colour": {"enum": COLOURS}}, "required": ["colour"]}
    body = {"json_format": schema | {"additionalProperties": False}, "json_format_is_json_schema": True}
    *_, last = await generate(http, "/v1/generate_stream", max_tokens=100, **body)
    assert json.loads(last["responses"][0])["colour"] in COLOURS


async def test_guided_requests_together(http: aiohttp.ClientSession) -> None:
    answers = await asyncio.gather(*(generate(http, response_pool=[colour]) for colour in COLOURS * 5))
    assert [answer["responses"][0] for (answer,) in answers] == COLOURS * 5
