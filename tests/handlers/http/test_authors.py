"""What the author of a formatter or a dialect gets wrong is a sentence with its place, not an internal error."""

import json
from pathlib import Path

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, Serve

FORMATTER = """
from lmi import OutputFormatter, hookimpl


class Plain(OutputFormatter):
    name = "plain"
    content_type = "text/plain"

    def format(self, output):
        return {returned}

    def error(self, error):
        return error.message.encode()


@hookimpl
def lmi_register_formatters(register):
    register(Plain)
"""
DIALECT = """
import json

from lmi import Answer, Generation, GenerationRequest, Handler, Route, hookimpl


async def tell(call, models):
    return models.nobody


class Mine(Handler):
    name = "mine"
    routes = (Route("/mine"), Route("/told", "GET", answer=tell))

    def model_name(self, path_parameters, headers):
        return None

    def parse(self, call, model):
        return Generation((GenerationRequest(call.json_object()["ask"], {}),), model.new_formatter("json"))

    def error(self, error, model, formatter):
        return Answer(500, "application/json", json.dumps({"problem": error.message}).encode())


@hookimpl
def lmi_register_handlers(register):
    register(Mine)
"""


LATER = (
    "output.text if output.finished else b''",
    "None if output.finished else b'a'",
    "'' if output.finished else b'a'",
)


@pytest.mark.parametrize("returned", ["output.delta", "None", "[b'a', output.delta]", *LATER])
async def test_a_formatter_that_returns_no_bytes(
    serve: Serve, model_dir: ModelDirectory, tmp_path: Path, returned: str
) -> None:
    plugin = tmp_path / "plain.py"
    plugin.write_text(FORMATTER.format(returned=returned))
    properties = SCRIPTED + "option.scripted_text=one two\noption.output_formatter=plain\n"
    server = await serve(model_dir({"serving.properties": properties}), plugins=[plugin])
    answer = await server.post("/invocations", {"inputs": "Hi", "stream": True})
    assert answer.body.decode().endswith(
        "the output formatter Plain must return bytes, as text.encode() does, or a list of them"
    )


async def test_a_dialect_that_raises(serve: Serve, model_dir: ModelDirectory, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(DIALECT)
    line = DIALECT.splitlines().index("    def parse(self, call, model):") + 2
    server = await serve(model_dir({"serving.properties": SCRIPTED}), plugins=[plugin])
    answer = await server.post("/mine", {"asked": "Hi"})
    assert (answer.status, json.loads(answer.body)) == (
        500,
        {"problem": f"the dialect mine (Mine) raised KeyError: 'ask' (mine.py, line {line})"},
    )
    told = await server.get("/told")
    assert "the dialect mine (Mine) raised AttributeError: " in told.json()["problem"]
    assert "(mine.py, line 8)" in told.json()["problem"]
