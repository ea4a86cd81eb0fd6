"""A body goes through `json` once on its way through the server, however many steps look at it."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from lmi_handlers.testing import running_server
from tests.conftest import SCRIPTED, RunningServer

FORMATTER = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(response_data: dict) -> dict:
    return {"by": "french"}
"""
PARAMETERS = {"max_new_tokens": 2}
PROMPT = "as nobody else writes it"  # no answer has it: what has it is the body, or was made of it
CHAT = [{"role": "user", "content": PROMPT}]
TENSOR = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [PROMPT]}
EXCLUDE = {"exclude_input_in_output": True}  # what is written is not read again


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """Two models, so that bodies name them; each has an adapter that has a formatter of its own."""
    root = tmp_path_factory.mktemp("models")
    for name in ("one", "two"):
        write_model(root / name)
    async with running_server(root) as running:
        yield running


def write_model(directory: Path) -> None:
    adapter = directory / "adapters" / "french"
    adapter.mkdir(parents=True)
    (adapter / "model.py").write_text(FORMATTER)
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (directory / "serving.properties").write_text(f"{SCRIPTED}option.chat_template={template}\n")


@pytest.mark.parametrize(
    ("path", "payload", "by_adapter"),
    [
        ("/invocations", {"model": "one", "inputs": PROMPT, "parameters": PARAMETERS}, False),
        ("/invocations", {"model": "one", "inputs": PROMPT, "adapters": "french"}, True),
        ("/invocations", {"model": "one", "inputs": PROMPT, "parameters": {"adapter_id": "french"}}, True),
        ("/invocations", {"model": "one", "messages": CHAT, "adapters": ["french"]}, True),
        ("/v1/chat/completions", {"model": "two", "messages": CHAT}, False),
        ("/v1/chat/completions", {"model": "two", "messages": CHAT, "adapters": "french"}, True),
        ("/v1/completions", {"model": "two", "prompt": PROMPT, "adapters": "french"}, True),
        ("/v1/messages", {"model": "two", "messages": CHAT, "max_tokens": 2, "adapters": "french"}, True),
        ("/v1/generate", {"model": "two", "prompt": PROMPT, "adapters": "french"}, True),
        ("/api/generate", {"model": "two:latest", "prompt": PROMPT}, False),
        ("/api/chat", {"model": "two", "messages": CHAT, "adapters": "french"}, True),
        ("/v2/models/one/generate", {"text_input": PROMPT, "adapters": "french", "parameters": EXCLUDE}, True),
        ("/v2/models/one/infer", {"inputs": [TENSOR], "adapters": "french", "parameters": EXCLUDE}, None),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_body_is_parsed_once(
    server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    payload: dict[str, Any],
    by_adapter: bool | None,
) -> None:
    parsed: list[bytes] = []
    loads: Callable[[bytes], Any] = orjson.loads

    def noted(text: bytes) -> Any:
        parsed.append(text)
        return loads(text)

    body = orjson.dumps(payload)
    with monkeypatch.context() as patched:
        patched.setattr(orjson, "loads", noted)
        answer = await server.post(path, data=body)
    assert answer.status == 200, answer.body
    assert [text for text in parsed if PROMPT.encode() in text] == [body]
    if by_adapter is not None:
        assert (b"french" in answer.body) is by_adapter
