"""Bodies that no client means: every dialect refuses or answers them, and a neighbour's answer stays as it is."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conftest import RunningServer, running_server
from tests.plugins.torch_engine.tiny_models import save_model, save_tokenizer

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROPERTIES = """\
option.rolling_batch=torch
option.tool_call_parser=hermes
option.reasoning_parser=qwen3
option.max_rolling_batch_size=16
option.chat_template={% for message in messages %}{{ message.content }}{% endfor %}
"""
AT_ONCE = 8
BATCHES = 5  # of each dialect
SECONDS = 60  # in which all requests of a batch end, on any machine
NEIGHBOUR = {"inputs": "Hello world", "parameters": {"max_new_tokens": 12}}
# Names of parameters that have a schema of their own in no document.
PARAMETERS = ("max_new_tokens", "temperature", "top_p", "top_k", "seed", "stop", "n", "best_of", "details", "logprobs")
DIALECTS = {
    "lmi": ("/invocations", "/predictions/model"),
    "sagemaker": ("/endpoints/mine/invocations", "/endpoints/mine/invocations-response-stream"),
    "openai": ("/v1/chat/completions", "/v1/completions"),
    "responses": ("/v1/responses", "/v1/responses/input_tokens"),
    "anthropic": ("/v1/messages", "/v1/messages/count_tokens"),
    "tgi": ("/generate", "/generate_stream", "/"),
    "triton": ("/v2/models/model/generate", "/v2/models/model/generate_stream", "/v2/models/model/infer"),
    "happy_vllm": ("/v1/generate", "/v1/generate_stream", "/v2/tokenizer", "/v2/decode", "/v1/split_text"),
    "ollama": ("/api/chat", "/api/generate"),
    "vllm": ("/tokenize", "/detokenize"),
}


class Raw(str):
    """JSON, or what looks like it, as it is written."""

    __slots__ = ()


def deep(depth: int) -> Raw:
    return Raw("[" * depth + "]" * depth)


WRITTEN = (
    Raw("NaN"), Raw("-Infinity"), Raw("1e999"), Raw("-0.0"), Raw("9" * 5000), Raw('"\\ud800"'), Raw('"\xff"'), Raw(""),
    deep(100), deep(3000), Raw('{"a":' * 200 + "1" + "}" * 200),
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 2**31, 2**53, 2**63, 2**64, -(2**63), 0.5, -1.5, 1e308, -1e308, 5e-324,
    "", " ", "a", "\0", "\u2028", "0", "true", "x" * 30_000, "🙂" * 50, [], {}, [[]], [None], [0], [-1], [2**40], ["a"],
    [""], ["\0"], ["a"] * 70, [[1], ["a"]], [1.5], {"": ""}, {"0": 1}, {"-1": 1e308}, {"99999999999999999999": 1},
    {"type": "object"}, {"type": "json_object"}, {"type": "json", "value": {"$ref": "#"}},
    {"type": "regex", "value": "(a"}, "root ::= root",
    {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": []}}}, [{"role": "user"}],
    [{"type": "function", "function": {"name": "f"}}], [{"role": "tool", "content": None}], "auto", "none",
)  # fmt: skip
SMALL = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=5,
)
HOSTILE = st.sampled_from(WRITTEN) | st.sampled_from(VALUES) | st.sampled_from(VALUES) | SMALL


class Body(NamedTuple):
    path: str
    text: bytes


class Form(NamedTuple):
    """A body that is answered, and the names of its members and of others that it may have."""

    path: str
    example: dict[str, Any]
    names: tuple[str, ...]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    directory = tmp_path_factory.mktemp("models") / "model"
    save_tokenizer(directory)
    save_model(directory, "llama")
    (directory / "serving.properties").write_text(PROPERTIES)
    async with running_server(directory) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def document(server: RunningServer) -> dict[str, Any]:
    found: dict[str, Any] = (await server.get("/openapi.json")).json()
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_fuzzed_bodies(
    server: RunningServer, document: dict[str, Any], dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    expected = (await server.post("/invocations", NEIGHBOUR)).json()
    await asyncio.to_thread(fuzz, server, forms(document, DIALECTS[dialect]), expected, asyncio.get_running_loop())
    assert [record for record in caplog.records if record.exc_info] == []


def fuzz(server: RunningServer, known: list[Form], expected: Any, loop: asyncio.AbstractEventLoop) -> None:
    @settings(
        max_examples=BATCHES,
        phases=[Phase.generate, Phase.shrink],
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(bodies(known), min_size=AT_ONCE, max_size=AT_ONCE))
    def answered(batch: list[Body]) -> None:
        asyncio.run_coroutine_threadsafe(send_all(server, batch, expected), loop).result()

    answered()


async def send_all(server: RunningServer, batch: list[Body], expected: Any) -> None:
    """Send the bodies at once, with a request in their middle that all of them must leave alone."""
    async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as group:
        for index, body in enumerate(batch):
            group.create_task(check(server, body))
            if index == AT_ONCE // 2:
                neighbour = group.create_task(server.post("/invocations", NEIGHBOUR))
    assert neighbour.result().json() == expected


async def check(server: RunningServer, body: Body) -> None:
    headers = {"Content-Type": "application/json"}
    async with server.client.post(body.path, data=body.text, headers=headers) as response:
        text = await response.read()
    shown = (body.path, body.text[:2000], response.status, text[:2000])
    assert response.status < 500, shown
    assert not any(word in text for word in (b"internal error", b"Traceback", b'.py", line')), shown


def forms(document: dict[str, Any], paths: tuple[str, ...]) -> list[Form]:
    """Return each example of the document for these paths, which may have values for the names in its paths."""
    found = []
    for path in paths:
        template = path.replace("/mine/", "/{endpoint}/").replace("/models/model/", "/models/{model}/")
        template = template.replace("/predictions/model", "/predictions/{model}")
        body = document["paths"][template]["post"]["requestBody"]["content"]["application/json"]["schema"]
        for form in body.get("anyOf", [body]):
            if "$ref" in form:
                schema = document["components"]["schemas"][form["$ref"].rpartition("/")[2]]
                names = tuple({**schema.get("properties", {}), **dict.fromkeys(PARAMETERS)})
                found += [Form(path, example, names) for example in schema["examples"]]
    assert found
    return found


@st.composite
def bodies(draw: st.DrawFn, known: list[Form]) -> Body:
    """Draw a body: an example with some members replaced or added, on one or two levels, or bytes that are no JSON."""
    form = draw(st.sampled_from(known))
    content: Any = dict(form.example)
    for name, value in draw(st.dictionaries(st.sampled_from(form.names), HOSTILE, min_size=1, max_size=3)).items():
        places = [content, *(each for each in content.values() if isinstance(each, dict))]
        places += [
            each[0] for each in content.values() if isinstance(each, list) and each and isinstance(each[0], dict)
        ]
        draw(st.sampled_from(places))[name] = value
    text = written(content).encode("utf-8", "surrogatepass")
    cut = draw(st.integers(0, 40))
    return Body(form.path, text[: len(text) // 2] if cut == 0 else text)


def written(value: Any) -> str:
    """Return JSON with raw texts in it."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{written(each)}" for name, each in value.items()) + "}"
    return "[" + ",".join(map(written, value)) + "]" if isinstance(value, list) else json.dumps(value)
