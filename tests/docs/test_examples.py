"""The code in docs/how_to/plugins.md, saved to files and used as the page says."""

import re
from pathlib import Path
from typing import Any

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import import_file
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.docs.pages import page

PAGE = page("plugins.md")
CHAT = [{"role": "user", "content": "the"}]


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


MARKOV = {"serving.properties": "option.rolling_batch=markov\n", "corpus.txt": "the cat sat on a mat . the end"}
TEXT = " end"
# A request for one text in each dialect, and where the text lies in the answer.
ASKED: dict[str, tuple[dict[str, Any], tuple[str | int, ...]]] = {
    "/invocations": ({"inputs": "the"}, ("generated_text",)),
    "/v1/completions": ({"prompt": "the"}, ("choices", 0, "text")),
    "/v1/chat/completions": ({"messages": CHAT}, ("choices", 0, "message", "content")),
    "/v1/responses": ({"input": "the"}, ("output", 0, "content", 0, "text")),
    "/v1/messages": ({"messages": CHAT, "max_tokens": 9}, ("content", 0, "text")),
    "/generate": ({"inputs": "the"}, ("generated_text",)),
    "/v2/models/model/generate": ({"text_input": "the", "exclude_input_in_output": True}, ("text_output",)),
    "/v1/generate": ({"prompt": "the"}, ("responses", 0)),
    "/api/generate": ({"prompt": "the", "stream": False, "raw": True}, ("response",)),
    "/api/chat": ({"messages": CHAT, "stream": False}, ("message", "content")),
}


@pytest.mark.parametrize("path", ASKED)
async def test_text_backend_in_every_dialect(
    serve: Serve, model_dir: ModelDirectory, example: dict[str, object], path: str
) -> None:
    template = "option.chat_template={{ messages[0].content }}\n"
    files = MARKOV | {"serving.properties": MARKOV["serving.properties"] + template, "corpus.txt": "the end"}
    server = await serve(model_dir(files), plugins=[example["MarkovProperties"]])
    payload, place = ASKED[path]
    answer = await server.post(path, payload)
    found = answer.json()
    for member in place:
        found = found[member]
    assert (answer.status, found) == (200, TEXT)


async def test_text_backend(serve: Serve, model_dir: ModelDirectory, example: dict[str, object]) -> None:
    server = await serve(model_dir(MARKOV), plugins=[example["MarkovProperties"]])
    whole = await server.post("/invocations", {"inputs": "cat", "parameters": {"max_new_tokens": 3, "details": True}})
    assert whole.json()["generated_text"] == " sat on a"
    assert (whole.json()["details"]["finish_reason"], whole.json()["details"]["generated_tokens"]) == ("length", 3)
    stopped = {"inputs": "cat", "parameters": {"stop_sequences": ["t on"], "details": True}, "stream": True}
    *_, last = (await server.post("/invocations", stopped)).json_lines()
    assert (last["generated_text"], last["details"]["finish_reason"]) == (" sa", "stop_sequence")
    odd = await server.post("/invocations", {"inputs": "cat", "parameters": {"surprise": 2}})
    assert (odd.status, odd.json()["error"]) == (424, "`surprise` must be less than or equal to 1. Given: 2")
    other = {"prompt": ["cat", "."], "max_tokens": 2, "seed": 1, "surprise": 1}
    texts = (await server.post("/v1/completions", other)).json()
    assert texts["usage"]["completion_tokens"] == 4
    assert [choice["finish_reason"] for choice in texts["choices"]] == ["length", "length"]


async def test_text_backend_with_an_option(serve: Serve, model_dir: ModelDirectory, example: dict[str, object]) -> None:
    files = {"serving.properties": "option.rolling_batch=markov\noption.markov_file=other.txt\n"}
    server = await serve(model_dir(files | {"other.txt": "the dog"}), plugins=[example["MarkovProperties"]])
    assert (await server.post("/invocations", {"inputs": "the"})).json() == {"generated_text": " dog"}
    with pytest.raises(ConfigurationError, match=r"the markov backend \(MarkovBackend\) did not start: FileNotFound"):
        await serve(model_dir(files, name="without"), plugins=[example["MarkovProperties"]])


def test_a_text_backend_is_short() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "MarkovBackend" in block]
    assert len([line for line in code.splitlines() if line.strip()]) <= 25


def test_the_page_imports_nothing_of_ours_but_lmi() -> None:
    assert set(re.findall(r"^(?:from|import) (lmi\w*)", PAGE.read_text(), re.MULTILINE)) == {"lmi"}


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
