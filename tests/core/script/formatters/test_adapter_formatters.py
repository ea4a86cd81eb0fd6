"""Adapters with a model.py of their own, served over a real socket."""

from typing import Any

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

TEXT = "Deep Learning is a really cool field."
BODY = {"inputs": "What is it?"}

ADAPTER = """\
from djl_python.output_formatter import output_formatter


@output_formatter
def f(response_data: dict) -> dict:
    return {"adapter": NAME} | response_data
"""


@pytest.fixture
async def adapters(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(
        model_dir(
            {
                "serving.properties": SCRIPTED,
                "model.py": ADAPTER.replace("NAME", "'none'"),
                "adapters/french/model.py": ADAPTER.replace("NAME", "'french'"),
                "adapters/german/model.py": ADAPTER.replace("NAME", "'german'"),
            }
        )
    )


@pytest.mark.parametrize(
    ("body", "headers", "adapter"),
    [
        ({}, {}, "none"),
        ({"adapters": "french"}, {}, "french"),
        ({"adapters": ["german"]}, {}, "german"),
        ({}, {"X-Amzn-SageMaker-Adapter-Identifier": "german"}, "german"),
        ({"adapters": "german"}, {"x-amzn-sagemaker-adapter-identifier": "german"}, "german"),
        ({"adapters": ""}, {}, "none"),
        ({"adapters": []}, {}, "none"),
    ],
)
async def test_adapter(adapters: RunningServer, body: dict[str, Any], headers: dict[str, str], adapter: str) -> None:
    answer = await adapters.post("/invocations", BODY | body, headers=headers)
    assert answer.json() == {"adapter": adapter, "generated_text": TEXT}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("frensh", "there is no adapter `frensh`. Did you mean `french`? Known: french, german"),
        (["french", "german"], "`adapters` must name one adapter, or one for each of the prompts (1). Given: 2"),
        (5, "`adapters` must be the name of an adapter, or a list with one for each prompt. Given: 5"),
    ],
)
async def test_unknown_adapter(adapters: RunningServer, named: object, message: str) -> None:
    answer = await adapters.post("/invocations", BODY | {"adapters": named})
    assert (answer.status, answer.json()["error"]) == (424, message)


async def test_adapter_whose_weights_the_backend_cannot_apply(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED, "adapters/french/adapter_config.json": "{}"})
    server = await serve(directory)
    answer = await server.post("/invocations", BODY | {"adapters": "french"})
    message = "adapter `french` has weights, but the scripted backend has not loaded them"
    assert (answer.status, answer.json()["error"]) == (424, message)


async def test_adapter_that_is_unloaded(adapters: RunningServer) -> None:
    adapters.model.plan.code.unload_adapter("french")
    answer = await adapters.post("/invocations", BODY | {"adapters": "french"})
    assert answer.json()["error"] == "there is no adapter `french`. Known: german"
    assert (await adapters.post("/invocations", BODY | {"adapters": "german"})).status == 200
