"""What docs/reference/anthropic.md shows, run as it stands but for the address."""

import asyncio
import json
import re

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.docs.pages import page

PAGE = page("anthropic.md").read_text()
ADDRESS = "http://127.0.0.1:8080"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert isinstance(found, str)
    return found


async def test_client(serve: Serve, model_dir: ModelDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    code = block("python")
    assert ADDRESS in code
    await asyncio.to_thread(exec, code.replace(ADDRESS, server.server.url) + "client.close()\n", {})
    assert capsys.readouterr().out == "Deep Learning is a really cool field.\n"


async def test_answer(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    body = {"max_tokens": 256, "messages": [{"role": "user", "content": "What is Deep Learning?"}]}
    answer = (await server.post("/v1/messages", body)).json()
    assert answer | {"id": "msg_..."} == json.loads(block("json"))
