"""The code in docs/plugins.md, saved to files and used as the page says."""

import re
from pathlib import Path

import pytest

from lmi_core.plugins import import_file
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
    directory = model_dir({"serving.properties": "option.rolling_batch=parrot\n"})
    server = await serve(directory, plugins=[example["ParrotBackend"]])
    assert (await server.post("/invocations", {"inputs": "Polly says hi"})).json() == {
        "generated_text": "Polly says hi"
    }


async def test_handler(serve: Serve, model_dir: ModelDirectory, example: dict[str, object]) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}), plugins=[example["PlainHandler"]])
    answer = await server.post("/plain/model", data=b"hello")
    assert answer.body == b"Deep Learning is a really cool field."
    failed = await server.post("/plain/model", data=b"")
    assert (failed.status, failed.json()) == (400, {"problem": "the body must hold the prompt"})
