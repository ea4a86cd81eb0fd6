"""What the pages show, run as a reader would run it, except for the address."""

import asyncio
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from lmi_core.plugins.loading import load_plugins
from lmi_handlers.cli.plans import read_plans
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.docs.pages import ROOT
from tests.docs.snippets import KINDS, SNIPPETS, Snippet

ADDRESSES = ("127.0.0.1:8080", "localhost:8080")
HELLO = ROOT / "examples" / "hello"
EMBEDDINGS = "embeddings.md"
RERANKING = "reranking.md"
# What the server of a page says, where it is not the scripted backend's own text, and the model's name.
SAYS = {
    "happy_vllm.md": "Ada Lovelace was a mathematician.",
    "triton.md": "model output",
}
FILES = {
    "model_function.md": {
        "model.py": "from djl_python import Output\n\n\ndef handle(inputs):\n"
        "    if inputs.is_empty():\n        return None\n"
        "    assert inputs.get_as_bytes('image') == b'a cat' and inputs.get_as_string('size') == '2'\n"
        "    return Output().add('seen')\n",
    },
}
SENT_FILES = {"cat.png": b"a cat"}
NAMES = {"triton.md": "mymodel", "ollama.md": "hello"}

LEFT = [
    snippet
    for snippet in SNIPPETS
    if not (snippet.reason_not_to_run or snippet.own_test or snippet.in_session) and snippet.language in KINDS
]


def of(language: str) -> pytest.MarkDecorator:
    found = [
        pytest.param(snippet, id=snippet.name, marks=[pytest.mark.torch] * (snippet.page.name == EMBEDDINGS))
        for snippet in LEFT
        if snippet.language == language
    ]
    return pytest.mark.parametrize("snippet", found)


async def server_of(page: Path, serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    """Serve what the page speaks of."""
    if page.name == EMBEDDINGS:
        return await serve(model_dir({"serving.properties": f"option.model_id={HELLO}\noption.task=text-embedding\n"}))
    if page.name in FILES:
        return await serve(model_dir(FILES[page.name]))
    text = f"option.scripted_text={SAYS[page.name]}\n" if page.name in SAYS else ""
    if page.name == RERANKING:
        text = "option.task=reranking\n"
    return await serve(model_dir({"serving.properties": SCRIPTED + text}, NAMES.get(page.name, "model")))


def at(text: str, server: RunningServer) -> str:
    """Return the text with the address that the pages name replaced by the server's."""
    for address in ADDRESSES:
        text = text.replace(address, f"127.0.0.1:{server.server.port}")
    return text


@of("sh")
async def test_command(serve: Serve, model_dir: ModelDirectory, tmp_path: Path, snippet: Snippet) -> None:
    for name, content in SENT_FILES.items():
        (tmp_path / name).write_bytes(content)
    server = await server_of(snippet.page, serve, model_dir)
    script = 'curl() { command curl --silent --show-error --fail-with-body "$@"; }\n' + at(snippet.text, server)
    process = await asyncio.create_subprocess_exec(
        "bash", "-euc", script, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=tmp_path
    )
    out, err = await process.communicate()
    assert process.returncode == 0, (out, err)
    assert not snippet.answer or json.loads(out) == json.loads(snippet.answer)


@of("python")
async def test_code(serve: Serve, model_dir: ModelDirectory, snippet: Snippet) -> None:
    server = await server_of(snippet.page, serve, model_dir)
    printed = StringIO()
    code = compile(at(snippet.text, server), snippet.name, "exec")

    def run() -> None:
        names: dict[str, object] = {}
        with redirect_stdout(printed):
            exec(code, names)
        close = getattr(names.get("client"), "close", None)
        if close is not None:
            close()

    await asyncio.to_thread(run)
    assert printed.getvalue().strip()
    assert not snippet.answer or printed.getvalue().strip() == snippet.answer.strip()


@of("properties")
def test_properties(snippet: Snippet, model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture) -> None:
    """The keys are declared, and their values valid: reading them tells of neither."""
    plugins = load_plugins()
    (plan,) = read_plans(model_dir({"serving.properties": snippet.text}), {}, plugins)
    assert plan.backend is not None
    assert "did you mean" not in caplog.text


@of("json")
def test_json(snippet: Snippet) -> None:
    for text in [snippet.text] if snippet.text.lstrip()[0] != "{" else joined(snippet.text):
        json.loads(text)


def joined(text: str) -> list[str]:
    """Return the objects of a block: the whole of it, or each of its lines."""
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return text.splitlines()
    return [text]


def test_text_is_always_what_something_prints() -> None:
    shown = {snippet.answer for snippet in SNIPPETS}
    assert [snippet.name for snippet in LEFT if snippet.language == "text" and snippet.text not in shown] == []
