"""`lora_name`, by which clients of Triton's vLLM backend name an adapter."""

from typing import Any

import orjson
import pytest
import pytest_asyncio

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

FORMATTER = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(response_data: dict) -> dict:
    return {"by": "french"}
"""
GENERATE = "/v2/models/model/generate"
FRENCH = {"lora_name": "french"}
TEXT_INPUT = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["hi"]}


@pytest_asyncio.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED, "adapters/french/model.py": FORMATTER}))


@pytest.mark.parametrize(
    "named",
    [
        FRENCH,
        {"lora_name": ["french"]},
        {"parameters": FRENCH},
        {"sampling_parameters": FRENCH},
        {"parameters": {"sampling_parameters": FRENCH}},
        {"sampling_parameters": orjson.dumps(FRENCH | {"max_tokens": "2"}).decode()},
        {**FRENCH, "adapters": "french"},
    ],
)
async def test_places(server: RunningServer, named: dict[str, Any]) -> None:
    answer = await server.post(GENERATE, {"text_input": "hi", **named})
    assert (answer.status, answer.json()) == (200, {"by": "french"})


async def test_infer(server: RunningServer) -> None:
    answer = await server.post("/v2/models/model/infer", {"inputs": [TEXT_INPUT], "parameters": FRENCH})
    assert (answer.status, answer.json()) == (200, {"by": "french"})


async def test_none(server: RunningServer) -> None:
    answer = await server.post(GENERATE, {"text_input": "hi", "lora_name": None, "parameters": {"lora_name": ""}})
    assert answer.json()["text_output"].startswith("hiDeep")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"lora_name": "german"}, 404, "there is no adapter `german`. Known: french"),
        ({"lora_name": 5}, 400, "`lora_name` must be the name of an adapter. Given: 5"),
        ({**FRENCH, "adapters": "german"}, 400, "`lora_name` and `adapters` name different adapters: "),
        ({"sampling_parameters": '{"lora_name": '}, 400, "`sampling_parameters` is not valid JSON"),
    ],
)
async def test_errors(server: RunningServer, body: dict[str, Any], status: int, message: str) -> None:
    answer = await server.post(GENERATE, {"text_input": "hi", **body})
    assert answer.status == status
    assert answer.json()["error"].startswith(message), answer.json()
