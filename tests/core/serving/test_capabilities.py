"""What models can do, as dialects and clients are told."""

from typing import Any

import pytest

from lmi_core.serving.capabilities import Capabilities, known_capabilities
from tests.conftest import SCRIPTED, ModelDirectory, Serve

HANDLE = "def handle(inputs):\n    return None\n"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ("", {"completion", "chat", "log_probs"}),
        (
            "option.tool_call_parser=hermes\n",
            {"completion", "chat", "tools", "log_probs"},
        ),
        ("option.chat_template={{ messages[0].content }}\n", {"completion", "chat", "log_probs"}),
        ("option.reasoning_parser=qwen3\n", {"completion", "chat", "reasoning", "log_probs"}),
        ("option.task=text-embedding\n", {"embeddings"}),
    ],
)
async def test_capabilities(serve: Serve, model_dir: ModelDirectory, properties: str, expected: set[str]) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + properties}))
    known = known_capabilities(server.model)
    assert known is not None
    assert {name for name in Capabilities.__dataclass_fields__ if getattr(known, name)} == expected


async def test_no_chats_without_a_chat_template(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    server.scripted.tokenizer.template = None
    known = known_capabilities(server.model)
    assert known is not None
    assert (known.completion, known.chat, known.tools) == (True, False, False)


async def test_nothing_is_known_of_a_model_function(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"model.py": HANDLE}))
    assert known_capabilities(server.model) is None
    (entry,) = (await server.get("/v1/models")).json()["data"]
    assert entry["capabilities"] is None


async def test_they_are_told(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    (entry,) = (await server.get("/v1/models")).json()["data"]
    told: dict[str, Any] = entry["capabilities"]
    assert told == {
        "completion": True,
        "chat": True,
        "tools": False,
        "insert": False,
        "reasoning": False,
        "logprobs": True,
        "images": 0,
        "embeddings": False,
        "rerank": False,
    }
