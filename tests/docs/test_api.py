"""The bodies in docs/reference/api.md: the request that it shows, and the answers that the server gives."""

import json
import re

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.docs.pages import page
from tests.handlers.lmi.test_dynamic import AutoPlugin

REQUEST, WHOLE, STREAM, ASYNC, ASYNC_STREAM, DYNAMIC, DYNAMIC_STREAM = re.findall(
    r"```json\n(.*?)```", page("api.md").read_text(encoding="utf-8"), re.DOTALL
)


def lines(block: str) -> list[object]:
    return [json.loads(line) for line in block.splitlines()]


async def test_rolling_batch(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    body = json.loads(REQUEST)
    body["parameters"]["max_new_tokens"] = 2
    first, second = json.loads(WHOLE)["details"]["tokens"]
    answer = (await server.post("/invocations", body)).json()
    shown = json.loads(WHOLE)
    assert [token.pop("id") for token in (first, second)] == [7, 8]
    assert [token.pop("id") for token in answer["details"]["tokens"]]
    assert answer["details"]["tokens"] == [first, second]
    assert answer.keys() == shown.keys()
    assert answer["details"] | {"tokens": 0} == shown["details"] | {"tokens": 0}
    streamed = (
        await server.post("/invocations", body | {"stream": True, "parameters": {"max_new_tokens": 2}})
    ).json_lines()
    expected = lines(STREAM)
    for line in (*streamed, *expected):
        del line["token"]["id"]
    assert streamed == expected


async def test_asynchronous_mode(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.async_mode=true\n"}))
    body = {"inputs": "What is Deep Learning?", "parameters": {"max_new_tokens": 2, "details": True}}
    assert (await server.post("/invocations", body)).json() == json.loads(ASYNC)
    assert (await server.post("/invocations", body | {"stream": True})).json_lines() == lines(ASYNC_STREAM)


async def test_dynamic_batch(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=disable\n"})
    server = await serve(directory, plugins=[AutoPlugin()])
    answer = await server.post("/invocations", {"inputs": ["What is Deep Learning?"]})
    assert answer.json() == json.loads(DYNAMIC)
    server.scripted.enqueue(Script("This opportunity"))
    stream = await server.post("/invocations", {"inputs": ["What is Deep Learning?"], "stream": True})
    assert stream.json_lines() == lines(DYNAMIC_STREAM)
