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


RETURNED = (
    ("output.delta", "str"),
    ("None", "NoneType"),
    ("7", "int"),
    ("{}", "dict"),
    ("[b'a', output.delta]", "str"),
    ("output.text if output.finished else b''", "str"),
    ("None if output.finished else b'a'", "NoneType"),
    ("'' if output.finished else b'a'", "str"),
)


@pytest.mark.parametrize(("returned", "kind"), RETURNED)
async def test_a_formatter_that_returns_no_bytes(
    serve: Serve, model_dir: ModelDirectory, tmp_path: Path, returned: str, kind: str
) -> None:
    plugin = tmp_path / "plain.py"
    plugin.write_text(FORMATTER.format(returned=returned))
    properties = SCRIPTED + "option.scripted_text=one two\noption.output_formatter=plain\n"
    server = await serve(model_dir({"serving.properties": properties}), plugins=[plugin])
    answer = await server.post("/invocations", {"inputs": "Hi", "stream": True})
    assert answer.body.decode().endswith(
        f"the output formatter Plain must return bytes, as text.encode() does, or a list of them. Returned: {kind}"
    )


async def test_a_formatter_that_raises_and_cannot_write_its_errors(
    serve: Serve, model_dir: ModelDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = tmp_path / "plain.py"
    code = FORMATTER.format(returned="output.delta.encode() if output.is_first else output.nothing")
    plugin.write_text(code.replace("error.message.encode()", "error.message"))
    properties = SCRIPTED + "option.scripted_text=one two\noption.output_formatter=plain\n"
    server = await serve(model_dir({"serving.properties": properties}), plugins=[plugin])
    answer = await server.post("/invocations", {"inputs": "Hi", "stream": True})
    assert answer.body == b"one"  # and the end of the response
    raised = "the output formatter Plain raised AttributeError: 'GenerationOutput' object has no attribute 'nothing'"
    assert f"{raised} (plain.py, line 10)" in [error.message for error in server.dispatcher.metrics.errors]
    assert "a list of them. Returned: str" in caplog.text


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
