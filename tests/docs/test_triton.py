"""Examples of docs/reference/triton.md, run unchanged except for the address."""

import asyncio
import json
import re
import shlex

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.docs.pages import page

PAGE = page("triton.md").read_text()
ADDRESS = "127.0.0.1:8080"
GRPC_ADDRESS = "127.0.0.1:8001"


async def test_client(serve: Serve, model_dir: ModelDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}, name="mymodel"))
    code, _ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert ADDRESS in code
    await asyncio.to_thread(exec, code.replace(ADDRESS, f"127.0.0.1:{server.server.port}"), {})
    assert capsys.readouterr().out == "Deep Learning\n"


async def test_grpc_client(serve: Serve, model_dir: ModelDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}, name="mymodel"), grpc=True)
    _, code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert GRPC_ADDRESS in code
    await asyncio.to_thread(exec, code.replace(GRPC_ADDRESS, server.grpc_address), {})
    assert capsys.readouterr().out == "Deep| Learning| is| a| really| cool| field.|"


async def test_curl(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = SCRIPTED + "option.scripted_text=model output\n"
    server = await serve(model_dir({"serving.properties": properties}, name="mymodel"))
    command, _ = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    *_, url, _, payload = shlex.split(command.replace("\\\n", ""))
    answer = await server.post(url.removeprefix("localhost:8080"), data=payload.encode())
    expected, _ = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert answer.json() == json.loads(expected)
