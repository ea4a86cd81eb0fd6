"""Examples of docs/reference/sagemaker.md, run unchanged except for the address."""

import asyncio
import re

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.docs.pages import page

PAGE = page("sagemaker.md").read_text()
ADDRESS = "http://127.0.0.1:8080"


async def test_client(serve: Serve, model_dir: ModelDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.scripted_text=A cool field.\n"}))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert ADDRESS in code
    await asyncio.to_thread(exec, code.replace(ADDRESS, server.server.url) + "client.close()\n", {})
    assert capsys.readouterr().out.splitlines() == ["A cool field.", "A", " cool", " field."]
