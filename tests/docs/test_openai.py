"""Examples of docs/reference/openai.md, run unchanged except for the address."""

import asyncio
import re
import shlex

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.docs.pages import page

PAGE = page("openai.md").read_text()
ADDRESS = "http://127.0.0.1:8080"


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert isinstance(found, str)
    assert ADDRESS in found
    return found


async def test_client(serve: Serve, model_dir: ModelDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    code = block("python").replace(ADDRESS, server.server.url) + "client.close()\n"
    await asyncio.to_thread(exec, code, {})
    assert capsys.readouterr().out == "Deep Learning is a really cool field.\n"


async def test_curl(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    _, url, _, payload = shlex.split(block("sh"))
    answer = await server.post(url.removeprefix(ADDRESS), data=payload.encode())
    assert (answer.status, len(answer.json_lines())) == (200, 7)
