"""The code in docs/how_to/model_function.md, each block as the model.py of a model directory."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest

from lmi_core.script.djl_names import inputs, outputs
from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.docs.pages import page

PAGE = page("model_function.md").read_text()
LOADING, STREAM, ASYNCHRONOUS, BATCH, ROLLING = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

Start = Callable[..., Awaitable[RunningServer]]


@pytest.fixture
def start(serve: Serve, model_dir: ModelDirectory) -> Start:
    async def started(code: str, properties: str = "") -> RunningServer:
        return await serve(model_dir({"serving.properties": properties, "model.py": code}))

    return started


async def test_handler_that_loads_a_model(start: Start) -> None:
    server = await start(LOADING, "option.suffix=!\n")
    assert (await server.post("/invocations", {"text": "abc"})).json() == {"reversed": "cba!"}


async def test_stream(start: Start) -> None:
    answer = await (await start(STREAM)).post("/invocations", {"text": "one two"})
    assert answer.content_type == "application/jsonlines"
    assert answer.json_lines() == [{"outputs": "one"}, {"outputs": "two"}]


async def test_asynchronous(start: Start) -> None:
    server = await start(ASYNCHRONOUS)
    assert (await server.post("/invocations", {"limit": 3})).json() == {"sum": 6}
    stream = await server.post("/invocations", {"limit": 2, "stream": True})
    assert stream.json_lines() == [{"number": 1}, {"number": 2}]


async def test_batch(start: Start) -> None:
    server = await start(BATCH, "batch_size=2\nmax_batch_delay=60000\n")
    answers = await asyncio.gather(*(server.post("/invocations", data=b"x" * size) for size in (3, 5)))
    assert [answer.json() for answer in answers] == [
        {"length": 3, "together_with": 1},
        {"length": 5, "together_with": 1},
    ]


async def test_rolling_batch(start: Start) -> None:
    server = await start(ROLLING, "option.rolling_batch=auto\n")
    texts = ["one two three", "four five"]
    answers = await asyncio.gather(*(server.post("/invocations", {"text": text}) for text in texts))
    assert [answer.body.decode() for answer in answers] == ["one two three ", "four five "]


def test_every_method_that_is_named_exists() -> None:
    tables = [line for line in PAGE.splitlines() if line.startswith("| `")]
    first_cells = {"Input": [], "Output": []}  # type: dict[str, list[str]]
    owner = ""
    for line in tables:
        names = re.findall(r"`(\w+)", line.split("|")[1])
        if names[0] in first_cells:
            owner = names[0]
        else:
            first_cells[owner] += names
    assert [name for name in first_cells["Input"] if not hasattr(inputs.Input, name)] == []
    assert [name for name in first_cells["Output"] if not hasattr(outputs.Output, name)] == []
    assert len(first_cells["Input"]) > 10
