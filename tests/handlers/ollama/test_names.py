"""Ollama's names of models, of which a tag, a host and the case of letters may be left out or added."""

import pytest

from lmi_handlers.ollama.names import find_name
from lmi_handlers.testing import running_server
from tests.conftest import SCRIPTED, RunningServer
from tests.handlers.ollama.asking import WHOLE, generate
from tests.handlers.openai.test_models import SCRIPT
from tests.module_server import module_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


# Two models; `one` has a name with a tag, and an adapter.
server = module_server(
    {
        "one/serving.properties": f"{SCRIPTED}option.scripted_text=uno\noption.served_model_name=llama3.2:3b\n",
        "one/adapters/french/model.py": SCRIPT,
        "two/serving.properties": f"{SCRIPTED}option.scripted_text=due\n",
    },
    "",
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one", "uno"),
        ("one:latest", "uno"),
        ("One", "uno"),
        ("library/one", "uno"),
        ("registry.ollama.ai/library/one:latest", "uno"),
        ("llama3.2:3b", "uno"),
        ("two:latest", "due"),
    ],
)
async def test_names(server: RunningServer, name: str, text: str) -> None:
    answer = (await generate(server, model=name, **WHOLE)).json()
    assert (answer["response"], answer["model"]) == (text, name)


@pytest.mark.parametrize("name", ["three", "one:3b", "llama3.2", "", None])
async def test_unknown_names(server: RunningServer, name: str | None) -> None:
    answer = await generate(server, model=name)
    expected = f"model '{name}' not found" if name else "several models are served; name one of: one, two"
    assert (answer.status, answer.json()) == (404, {"error": expected})


async def test_adapters(server: RunningServer) -> None:
    for name in ("french", "french:latest"):
        answer = await generate(server, model=name, **WHOLE)
        assert (answer.status, "french" in answer.json()["by"]) == (200, True)
    differ = await generate(server, model="french", adapters="german")
    message = "`model` and `adapters` name different adapters: 'french' and 'german'"
    assert (differ.status, differ.json()) == (400, {"error": message})


async def test_header_names_the_model(server: RunningServer) -> None:
    body = {"model": "anything", "prompt": "Hi", **WHOLE}
    answer = await server.post("/api/generate", body, headers={"X-Amzn-SageMaker-Target-Model": "two"})
    assert answer.json()["response"] == "due"


async def test_exact_names_come_first() -> None:
    assert find_name("Hello", ["hello", "Hello"]) == "Hello"
    assert find_name("hello:latest", ["Hello", "hello:latest"]) == "hello:latest"
    assert find_name("hello", ["hello:latest"]) == "hello:latest"
    assert find_name("hello", ["hello:7b"]) is None


async def test_only_model(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("model")
    (directory / "serving.properties").write_text(SCRIPTED)
    async with running_server(directory) as single:
        unnamed = await single.post("/api/generate", {"prompt": "Hi", **WHOLE})
        assert (unnamed.status, unnamed.json()["model"]) == (200, single.model.name)
        other = await generate(single, model="other")
        assert (other.status, other.json()) == (404, {"error": "model 'other' not found"})
