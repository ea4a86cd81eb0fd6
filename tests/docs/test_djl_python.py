"""The code in docs/reference/djl_python.md."""

import re
import subprocess
import sys

import pytest

from djl_python import huggingface
from djl_python.huggingface import HuggingFaceService
from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.docs.pages import ROOT, page

PAGE = page("djl_python.md").read_text()
SERVICE, STREAM, PREDICTION, OFFLINE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(ANSWER,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
PROPERTIES = f"option.model_id={ROOT / 'examples' / 'hello'}\n"
NAME, MY_NAME = "What is your name?", "My name is Hello."


@pytest.mark.torch
async def test_models(serve: Serve, model_dir: ModelDirectory) -> None:
    scripted = ("prediction", PREDICTION, SCRIPTED)
    for name, code, properties in (("service", SERVICE, PROPERTIES), ("stream", STREAM, PROPERTIES), scripted):
        store = model_dir({"serving.properties": properties, "model.py": code}, f"store/{name}").parent
    server = await serve(store)
    body = {"inputs": [NAME], "parameters": {"max_new_tokens": 20}}
    assert (await server.post("/predictions/service", body)).json() == [{"generated_text": NAME + MY_NAME}]
    lines = (await server.post("/predictions/stream", body)).json_lines()
    assert "".join(line["outputs"][0] for line in lines) == MY_NAME
    assert (await server.post("/predictions/prediction", body)).json() == {
        "predictions": ["Deep Learning is a really cool field."]
    }


@pytest.mark.torch
def test_without_a_server() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    assert done.stdout == ANSWER


def test_every_attribute_that_is_named_exists() -> None:
    (table,) = re.findall(r"\| `HuggingFaceService` \|.*?\n\n", PAGE, re.DOTALL)
    names = [name for line in table.strip().splitlines()[2:] for name in re.findall(r"`(\w+)", line.split("|")[1])]
    service = HuggingFaceService()
    lazy = [name for name in names if name in vars(HuggingFaceService)]
    assert [name for name in names if name not in lazy and not hasattr(service, name)] == []
    assert callable(huggingface.handle)
