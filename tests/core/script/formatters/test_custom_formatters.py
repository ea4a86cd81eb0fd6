"""The forms of a model's own formatters, and their failures, over a real socket."""

import asyncio
import shutil

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.core.script.formatters.served_scripts import BODY, SCRIPTS, STREAM, ServeScript


async def test_modules_beside_model_py(serve: Serve, model_dir: ModelDirectory) -> None:
    first = model_dir({"serving.properties": SCRIPTED}, "store/first")
    second = model_dir({"serving.properties": SCRIPTED}, "store/second")
    for directory in (first, second):
        shutil.copytree(SCRIPTS / "helpers", directory, dirs_exist_ok=True)
    (second / "helper.py").write_text('LABEL = "second"\n')
    server = await serve(first.parent)
    answers = [(await server.post(f"/predictions/{name}", BODY)).json() for name in ("first", "second")]
    assert answers == [
        {"label": "first", "words": "7 words", "late": "first again"},
        {"label": "second", "words": "7 words", "late": "second again"},
    ]


async def test_input_item(serve_script: ServeScript) -> None:
    server = await serve_script("input_item")
    answer = await server.post("/invocations", {"question": "Why?", "trace": 7})
    assert answer.json() == {"answer": "Deep Learning is", "prompt": "Q: Why?", "trace": [7, "scripted", 3]}


async def test_payload(serve_script: ServeScript) -> None:
    server = await serve_script("payload")
    answer = await server.post("/invocations", {"inputPrompt": "Why?"})
    assert answer.json() == {"generated_text": "Deep Learning"}
    assert server.scripted.history[0].prompt == "Why?"


CLASS_FORM = """\
from lmi_core.formatter import OutputFormatter, output_formatter


@output_formatter
class Counting(OutputFormatter):
    content_type = "text/csv"

    def __init__(self):
        self.count = 0

    def format(self, output):
        self.count += len(output.step.tokens)
        self.headers = {"X-First-Count": str(self.count)}
        return f"{self.count},{output.delta.strip()}\\n".encode()

    def error(self, error):
        return b"error\\n"
"""


async def test_class_form_keeps_state_for_each_call(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": CLASS_FORM}))
    answers = await asyncio.gather(*(server.post("/invocations", STREAM) for _ in range(3)))
    assert {answer.body.splitlines()[-1] for answer in answers} == {b"7,field."}
    assert {(answer.content_type, answer.headers["X-First-Count"]) for answer in answers} == {("text/csv", "1")}


async def test_class_form_that_raises(serve: Serve, model_dir: ModelDirectory) -> None:
    script = CLASS_FORM.replace("self.count = 0", "raise OSError('no file')")
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}))
    answer = await server.post("/invocations", BODY)
    assert (answer.status, answer.json()["error"]) == (
        424,
        "the output formatter Counting raised OSError: no file (model/model.py, line 9)",
    )


TWO = """\
from djl_python.output_formatter import output_formatter


@output_formatter
def first(response_data: dict):
    return {"first": response_data}


@output_formatter
def second(response_data: dict):
    return {"second": len(response_data)}
"""


async def test_option_names_the_formatter(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = SCRIPTED + "option.output_formatter=second\n"
    server = await serve(model_dir({"serving.properties": properties, "model.py": TWO}))
    assert (await server.post("/invocations", BODY)).json() == {"second": 1}


RAISES = """\
from djl_python.output_formatter import output_formatter


@output_formatter
def f(response_data: dict) -> dict:
    if response_data.get("generated_text"):
        {failure}
    return response_data
"""

WRONG = "is called as (response_data: dict) -> dict, and returned a wrong type:"


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ("raise KeyError('colour')", "raised KeyError: 'colour' (model/model.py, line 7)"),
        ("raise SystemExit(3)", "raised SystemExit: 3 (model/model.py, line 7)"),
        ("return None", f"{WRONG} NoneType"),
        ("return 7", f"{WRONG} int"),
        ("return {1, 2}", f"{WRONG} set. Type is not JSON serializable: set"),
    ],
)
async def test_formatter_that_raises(
    serve: Serve, model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture, failure: str, words: str
) -> None:
    script = RAISES.replace("{failure}", failure)
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}))
    answer = await server.post("/invocations", BODY, headers={"x-request-id": "r7"})
    assert (answer.status, answer.json()["error"]) == (424, f"the output formatter f {words}")
    if "raise" in failure:
        assert "request r7: the output formatter f raised\n" in caplog.text
        assert 'model.py", line 7, in f\n' in caplog.text
        assert "lmi_core" not in caplog.text.split("request r7: the output formatter")[1].split("request r7")[0]


async def test_formatter_that_raises_within_a_stream(serve: Serve, model_dir: ModelDirectory) -> None:
    script = RAISES.replace("{failure}", "raise KeyError('colour')")
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}))
    answer = await server.post("/invocations", STREAM)
    *lines, last = answer.json_lines()
    assert (answer.status, len(lines)) == (200, 6)
    assert last["error"] == "the output formatter f raised KeyError: 'colour' (model/model.py, line 7)"


async def test_formatter_that_never_returns(serve: Serve, model_dir: ModelDirectory) -> None:
    loop = (
        "while True:\n            try:\n                pass\n            except Exception:\n                continue"
    )
    script = RAISES.replace("{failure}", loop)
    properties = SCRIPTED + "option.predict_timeout=1\n"
    server = await serve(model_dir({"serving.properties": properties, "model.py": script}))
    answer = await server.post("/invocations", BODY)
    message = "the output formatter f took longer than option.predict_timeout=1 seconds"
    assert (answer.status, answer.json()["error"]) == (424, message)


async def test_input_formatter_that_raises(serve: Serve, model_dir: ModelDirectory) -> None:
    script = (
        "from djl_python.input_parser import input_formatter\n\n"
        "@input_formatter\ndef f(decoded_payload: dict) -> dict:\n    return decoded_payload['missing']\n"
    )
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}))
    answer = await server.post("/invocations", BODY)
    assert (answer.status, answer.json()["error"]) == (
        424,
        "the input formatter f raised KeyError: 'missing' (model/model.py, line 5)",
    )


async def test_input_formatter_that_returns_no_request(serve: Serve, model_dir: ModelDirectory) -> None:
    script = "from lmi import input_formatter\n\n\n@input_formatter\ndef f(decoded_payload):\n    return 7\n"
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}))
    answer = await server.post("/invocations", BODY)
    assert answer.json()["error"] == "the input formatter f must return a dict or a RequestInput. Returned: int"


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
async def test_function_that_returns_a_number(serve: Serve, model_dir: ModelDirectory, body: dict[str, object]) -> None:
    script = (
        "from lmi import GenerationOutput, output_formatter\n\n\n@output_formatter\ndef f(output: GenerationOutput):\n"
        "    return len(output.text) if output.is_last else output.delta\n"
    )
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}))
    answer = await server.post("/invocations", body)
    assert answer.status == (200 if body is STREAM else 424)
    assert (
        "the output formatter f is called as (output: GenerationOutput) -> str | bytes | dict, and returned a wrong "
        "type: int"
    ) in answer.body.decode()
