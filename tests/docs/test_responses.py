"""What docs/reference/responses.md shows, run as it stands but for the address."""

import asyncio
import re

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.docs.pages import page

PAGE = page("responses.md").read_text()


async def test_client(serve: Serve, model_dir: ModelDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    code = code.replace("http://127.0.0.1:8080", server.server.url) + "client.close()\n"
    await asyncio.to_thread(exec, code, {})
    assert capsys.readouterr().out == "Deep Learning is a really cool field.\n"
    assert server.scripted.history[-1].prompt.splitlines() == [
        "user: What is Deep Learning?",
        "assistant: Deep Learning is a really cool field.",
        "user: Say it again.",
        "assistant:",
    ]
