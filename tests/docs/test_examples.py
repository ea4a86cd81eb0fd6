"""The code in docs/plugins.md, saved to files and used as the page says."""

import re
from pathlib import Path

import pytest

from lmi_core.plugins.loading import import_file
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, Serve

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"


@pytest.fixture
def example(tmp_path: Path) -> dict[str, object]:
    """The page's plugins by the name of the first class or function in each."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    plugins: dict[str, object] = {}
    for block in blocks:
        name = re.search(r"^(?:class|def) (\w+)\(", block, re.MULTILINE)
        assert name is not None
        path = tmp_path / f"{name[1]}.py"
        path.write_text(block)
        plugins[name[1]] = import_file(path)
    return plugins


async def test_formatter(serve: Serve, model_dir: ModelDirectory, example: dict[str, object]) -> None:
    directory = model_dir({"serving.properties": SCRIPTED + "option.output_formatter=shout\n"})
    server = await serve(directory, plugins=[example["ShoutFormatter"]])
    answer = await server.post("/invocations", {"inputs": "hello"})
    assert (answer.content_type, answer.body) == ("text/plain; charset=utf-8", b"DEEP LEARNING IS A REALLY COOL FIELD.")
    failed = await server.post("/invocations", {"inputs": "hello", "parameters": {"top_k": "many"}})
    assert (failed.status, failed.body) == (424, b"SORRY: `top_k` must be a valid integer. Given: 'many'")


@pytest.mark.parametrize("path", ["/invocations", "/v1/chat/completions"])
async def test_formatter_function(
    serve: Serve, model_dir: ModelDirectory, example: dict[str, object], path: str
) -> None:
    directory = model_dir({"serving.properties": SCRIPTED + "option.output_formatter=whisper\n"})
    server = await serve(directory, plugins=[example["whisper"]])
    answer = await server.post(path, {"messages": [{"role": "user", "content": "hello"}]})
    assert (answer.content_type, answer.body) == ("text/plain; charset=utf-8", b"deep learning is a really cool field.")


async def test_backend(serve: Serve, model_dir: ModelDirectory, example: dict[str, object]) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=parrot\noption.parrot_memory=40\n"})
    server = await serve(directory, plugins=[example["ParrotProperties"]])
    assert server.model.backend.max_length == 40
    once = await server.post("/invocations", {"inputs": "Polly says hi"})
    assert once.json() == {"generated_text": "Polly says hi"}
    twice = await server.post("/invocations", {"inputs": " Hi", "parameters": {"repeat": 2}})
    assert twice.json() == {"generated_text": " Hi Hi"}
    never = await server.post("/invocations", {"inputs": " Hi", "parameters": {"repeat": 0}})
    assert (never.status, never.json()["error"]) == (424, "`repeat` must be greater than or equal to 1. Given: 0")


async def test_backend_that_takes_tensors(serve: Serve, model_dir: ModelDirectory, example: dict[str, object]) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=doubling\n"})
    server = await serve(directory, plugins=[example["DoublingBackend"]])
    answer = await server.post("/v2/models/model/generate", {"numbers": [1, 2]})
    assert answer.json()["doubled"] == [2, 4]


async def test_handler(serve: Serve, model_dir: ModelDirectory, example: dict[str, object]) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}), plugins=[example["PlainHandler"]])
    answer = await server.post("/plain/model", data=b"hello")
    assert answer.body == b"Deep Learning is a really cool field."
    failed = await server.post("/plain/model", data=b"")
    assert (failed.status, failed.json()) == (400, {"problem": "the body must contain the prompt"})


async def test_handler_with_formatters(serve: Serve, model_dir: ModelDirectory, example: dict[str, object]) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}), plugins=[example["Question"]])
    whole = await server.post("/question", {"ask": "What?", "words": 2})
    assert whole.json() == {"model": "Deep Learning"}
    stream = await server.post("/question", {"ask": "What?", "words": 2, "stream": True})
    assert stream.content_type == "application/x-ndjson"
    assert stream.json_lines() == [{"model": "Deep", "done": False}, {"model": " Learning", "done": True}]
    server.scripted.enqueue(Script("Deep", error="the engine fell over"))
    broken = await server.post("/question", {"ask": "What?", "stream": True})
    assert broken.json_lines() == [{"model": "Deep", "done": False}, {"problem": "the engine fell over"}]


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ({}, "`ask` is required"),
        ({"ask": "What?", "words": 0}, "`words` must be greater than or equal to 1. Given: 0"),
    ],
)
async def test_error_of_a_handler(
    serve: Serve, model_dir: ModelDirectory, example: dict[str, object], payload: dict[str, object], problem: str
) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}), plugins=[example["Question"]])
    answer = await server.post("/question", payload)
    assert (answer.status, answer.json()) == (400, {"problem": problem})
