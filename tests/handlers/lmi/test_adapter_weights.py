"""The routes that manage adapters, with a model whose adapters have weights."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psutil
import pytest
import pytest_asyncio

from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from tests.command_lines import workers_of
from tests.lmi_process import client_of
from tests.plugins.torch_engine.adapters.lora_adapters import merged_model, save_adapter
from tests.plugins.torch_engine.tiny_models import reference_ids, reference_model

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORMATTER = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(response_data: dict) -> dict:
    return {"by": "NAME"} | response_data
"""

HELLO = Path(__file__).parents[3] / "examples" / "hello"
PROMPT = "What is Deep Learning?"
COUNT = 12
WEIGHTS = "/models/hello/adapters"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two adapters of the hello model; the second has a formatter too."""
    base, model = tmp_path_factory.mktemp("adapters"), reference_model(HELLO)
    found = {name: save_adapter(base / name, model, seed) for seed, name in enumerate(("plain", "formatted"))}
    (found["formatted"] / "model.py").write_text(FORMATTER)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with client_of(HELLO) as client:
        yield client


@pytest.fixture(scope="module")
def expected(weights: dict[str, Path]) -> dict[str | None, list[int]]:
    """The tokens of the model, and of the models that the adapters were merged into."""
    prompt_ids = HuggingFaceTokenizer.load(str(HELLO)).encode(PROMPT)
    models = {None: reference_model(HELLO)} | {name: merged_model(HELLO, weights[name]) for name in weights}
    return {name: reference_ids(model, prompt_ids, COUNT) for name, model in models.items()}


async def change(client: aiohttp.ClientSession, method: str, path: str = "", **fields: object) -> int:
    async with client.request(method, WEIGHTS + path, json=fields or None) as response:
        await response.read()
        return response.status


async def ask(client: aiohttp.ClientSession, adapter: str | None) -> Any:
    """Status, tokens, and which formatter wrote the answer."""
    body = {"inputs": PROMPT, "adapters": adapter, "parameters": {"max_new_tokens": COUNT, "details": True}}
    async with client.post("/invocations", json=body) as response:
        answer = await response.json()
        tokens = answer["details"]["tokens"] if response.status == 200 else []
        return response.status, [token["id"] for token in tokens], answer.get("by")


async def test_weights(
    client: aiohttp.ClientSession, weights: dict[str, Path], expected: dict[str | None, list[int]]
) -> None:
    assert len({tuple(ids) for ids in expected.values()}) == 3
    assert await change(client, "POST", name="a", src=str(weights["plain"])) == 200
    assert await ask(client, "a") == (200, expected["plain"], None)
    assert await change(client, "POST", "/a/update", src=str(weights["formatted"])) == 200
    assert await ask(client, "a") == (200, expected["formatted"], "NAME")
    assert await change(client, "POST", "/a/update", src=str(weights["plain"])) == 200
    assert await ask(client, "a") == (200, expected["plain"], None)
    assert await change(client, "DELETE", "/a") == 200
    assert await ask(client, "a") == (424, [], None)
    assert await ask(client, None) == (200, expected[None], None)


async def test_weights_that_do_not_fit(
    client: aiohttp.ClientSession, weights: dict[str, Path], expected: dict[str | None, list[int]], tmp_path: Path
) -> None:
    save_adapter(tmp_path, reference_model(HELLO), 0, rank=64)
    (tmp_path / "model.py").write_text(FORMATTER)
    assert await change(client, "POST", name="b", src=str(weights["plain"])) == 200
    assert await change(client, "POST", "/b/update", src=str(tmp_path)) == 400
    assert await ask(client, "b") == (200, expected["plain"], None)
    assert await change(client, "POST", name="c", src=str(tmp_path)) == 400
    assert await ask(client, "c") == (424, [], None)
    assert await change(client, "DELETE", "/b") == 200


async def test_pin(
    client: aiohttp.ClientSession, weights: dict[str, Path], expected: dict[str | None, list[int]]
) -> None:
    async def pinned() -> dict[str, bool]:
        async with client.get(WEIGHTS) as response:
            return {each["name"]: each["pin"] for each in (await response.json())["adapters"]}

    for name in ("a", "b", "c"):
        assert await change(client, "POST", name=name, src=str(weights["plain"]), pin=True) == 200
    assert await change(client, "POST", name="d", src=str(weights["plain"]), pin=True) == 400
    assert await pinned() == {"a": True, "b": True, "c": True}  # d was not left behind
    assert await change(client, "POST", name="d", src=str(weights["plain"])) == 200
    assert await change(client, "POST", "/d/update", src=str(weights["formatted"]), pin=True) == 400
    assert await ask(client, "d") == (200, expected["plain"], None)
    assert await change(client, "POST", "/a/update", pin=False) == 200
    assert await change(client, "POST", "/d/update", src=str(weights["formatted"]), pin=True) == 200
    assert await pinned() == {"a": False, "b": True, "c": True, "d": True}
    assert await ask(client, "d") == (200, expected["formatted"], "NAME")
    assert await change(client, "POST", "/d/update", src=str(weights["plain"])) == 200
    assert (await pinned())["d"]  # the name's
    for name in ("a", "b", "c", "d"):
        assert await change(client, "DELETE", f"/{name}") == 200


async def test_adapters_outlive_the_engine_s_worker(
    client: aiohttp.ClientSession, weights: dict[str, Path], expected: dict[str | None, list[int]]
) -> None:
    assert await change(client, "POST", name="a", src=str(weights["formatted"]), pin=True) == 200
    assert await change(client, "POST", name="b", src=str(weights["plain"])) == 200
    assert await change(client, "POST", "/b/update", src=str(weights["formatted"])) == 200
    (worker,) = workers_of(psutil.Process())
    worker.kill()
    async with asyncio.timeout(100):
        while worker.is_running() or not workers_of(psutil.Process()):
            await asyncio.sleep(0.05)
        while await ask(client, "a") != (200, expected["formatted"], "NAME"):
            await asyncio.sleep(0.2)
    assert await ask(client, "b") == (200, expected["formatted"], "NAME")
    async with client.get(WEIGHTS) as response:
        listed = (await response.json())["adapters"]
    assert [(each["name"], each["pin"]) for each in listed] == [("a", True), ("b", False)]
    for name in ("a", "b"):
        assert await change(client, "DELETE", f"/{name}") == 200


async def test_what_runs_finishes(client: aiohttp.ClientSession, weights: dict[str, Path]) -> None:
    assert await change(client, "POST", name="d", src=str(weights["plain"])) == 200
    parameters = {"max_new_tokens": 200, "ignore_eos_token": True}
    body = {"inputs": PROMPT, "adapters": "d", "stream": True, "parameters": parameters}
    async with client.post("/invocations", json=body) as response:
        whole = await response.read()
    async with client.post("/invocations", json=body) as response:
        begun = await response.content.readline()
        assert await change(client, "DELETE", "/d") == 200
        assert await ask(client, "d") == (424, [], None)
        rest = await response.content.read()
    texts = [[orjson.loads(line)["token"]["id"] for line in data.splitlines()] for data in (whole, begun + rest)]
    assert len(texts[0]) == 200
    assert texts[0] == texts[1]
