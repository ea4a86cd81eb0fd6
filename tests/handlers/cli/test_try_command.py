"""`lmi try` as a person runs it."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from lmi_handlers.cli.try_command import changes
from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import LMI, lmi

SHOUT = """\
from lmi_core.formatter import GenerationOutput, output_formatter


@output_formatter
def shout(output: GenerationOutput) -> str:
    return output.delta.upper() + "\\n"
"""
REAL_MODEL = "option.rolling_batch=torch\noption.max_rolling_batch_prefill_tokens=100\n"


@pytest.fixture
def directory(model_dir: ModelDirectory) -> Path:
    """A model directory whose model is not there."""
    return model_dir({"serving.properties": REAL_MODEL, "model.py": SHOUT})


def test_each_chunk_with_its_time(directory: Path) -> None:
    result = lmi("try", directory, "--stream", "--say", "one two three")
    assert (result.returncode, result.stderr) == (0, "")
    head, *chunks = result.stdout.splitlines()
    assert head == "200 text/plain; charset=utf-8"
    assert [chunk.split(" ms  ")[1] for chunk in chunks] == ["ONE\\n", " TWO\\n", " THREE\\n"]
    times = [float(chunk.split(" ms")[0]) for chunk in chunks]
    assert times == sorted(times)


def test_no_engine_is_imported(directory: Path) -> None:
    """`lmi try` is quick because it imports no engine, each of which takes seconds."""
    result = lmi("try", directory, PYTHONPROFILEIMPORTTIME="1")
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in result.stderr.splitlines()}
    assert {"lmi_handlers", "lmi_plugins"} <= imported
    assert not {"torch", "transformers", "vllm"} & imported


@pytest.mark.parametrize("route", ["/invocations", "/v1/chat/completions", "/v1/completions"])
def test_routes(directory: Path, route: str) -> None:
    result = lmi("try", directory, "--route", route, "--say", "one", "--prompt", "Why?")
    assert result.stdout.splitlines()[1].endswith("ms  ONE\\n"), result.stdout + result.stderr


def test_body_of_a_file(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "body.json").write_text(json.dumps({"inputs": "a", "parameters": {"max_new_tokens": 1}}))
    assert lmi("try", directory, "--body", tmp_path / "body.json").stdout.splitlines()[1].endswith("DEEP\\n")
    missing = lmi("try", directory, "--body", tmp_path / "missing.json")
    assert (missing.returncode, missing.stderr) == (
        2,
        f"lmi: {tmp_path / 'missing.json'} cannot be read: No such file or directory\n",
    )


def test_formatter_that_raises_shows_its_own_lines(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED, "model.py": SHOUT.replace("delta.upper", "delta.shout")})
    result = lmi("try", directory)
    assert result.returncode == 1
    assert 'model.py", line 6, in shout' in result.stderr
    assert "lmi_core" not in result.stderr.split("Traceback")[1]
    assert "AttributeError: 'str' object has no attribute 'shout'" in result.stdout


def test_handle_function(model_dir: ModelDirectory) -> None:
    script = "from djl_python import Output\n\n\ndef handle(inputs):\n    return Output().add_as_json([1, 2])\n"
    result = lmi("try", model_dir({"model.py": script}))
    assert result.stdout.startswith("200 application/json\n")


def test_real_model_that_cannot_be_loaded(directory: Path) -> None:
    result = lmi("try", directory, "--real")
    assert result.returncode == 2
    assert "contains no config.json" in result.stderr


def test_changes_are_seen(directory: Path) -> None:
    seen = changes(directory, pause=0.001)
    next(seen)
    (directory / "model.py").write_text(SHOUT.replace("upper", "lower"))
    next(seen)
    (directory / "helper.py").touch()
    next(seen)


async def test_watch_tries_again_when_a_file_is_saved(directory: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(LMI, "try", directory, "--say", "one", "--watch"), stdout=asyncio.subprocess.PIPE, env=os.environ
    )
    assert process.stdout is not None
    try:
        assert (await read_until(process.stdout, b"-- watching"))[1].endswith(b"ONE\\n")
        (directory / "model.py").write_text(SHOUT.replace("upper", "title"))
        assert (await read_until(process.stdout, b"-- watching"))[1].endswith(b"One\\n")
    finally:
        process.terminate()
        await process.communicate()


async def read_until(stream: asyncio.StreamReader, mark: bytes) -> list[bytes]:
    lines = [await stream.readline()]
    while not lines[-1].startswith(mark):
        assert lines[-1], "the process ended"
        lines.append(await stream.readline())
    return [line.rstrip(b"\n") for line in lines]


def test_several_models(model_dir: ModelDirectory) -> None:
    store = model_dir({"serving.properties": SCRIPTED}, "store/one").parent
    model_dir({"serving.properties": SCRIPTED}, "store/two")
    assert lmi("try", store).stderr == f"lmi: {store} contains several models: give the directory of one\n"


def test_other_methods(directory: Path) -> None:
    result = lmi("try", directory, "-X", "get", "--route", "/v1/models?limit=1")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("200 application/json\n")
    assert '"id":"model"' in result.stdout
    assert lmi("try", directory, "-X", "DELETE", "--route", "/models/model/adapters/none").returncode == 1


@pytest.mark.parametrize("argument", ["--stream", "--prompt=x"])
def test_what_a_request_without_a_body_has_no_place_for(directory: Path, argument: str) -> None:
    result = lmi("try", directory, "-X", "GET", argument)
    assert result.returncode == 2
    assert "is part of a request's body, which GET does not have" in result.stderr


@pytest.mark.parametrize("real", [(), ("--real",)], ids=["scripted", "real"])
def test_warnings_of_check(model_dir: ModelDirectory, real: tuple[str, ...]) -> None:
    directory = model_dir(
        {
            "serving.properties": SCRIPTED + "option.dtyp=fp16\noption.foo=1\n",
            "model.py": "def custom_output_formatter(x): return ''\n",
        }
    )
    checked = json.loads(lmi("check", directory, "--json").stdout)
    warnings = [*checked["server"]["warnings"], *checked["models"][0]["warnings"]]
    assert len(warnings) == 3
    tried = lmi("try", directory, *real)
    assert tried.stderr.splitlines() == [f"lmi: warning: {warning}" for warning in warnings]


@pytest.mark.parametrize("route", ["/invocations", "/v1/completions"])
def test_stream_that_ends_in_an_error(model_dir: ModelDirectory, route: str) -> None:
    failing = SHOUT.replace("return ", "return 1 / 0 if output.is_last else ")
    directory = model_dir({"serving.properties": SCRIPTED, "model.py": failing})
    result = lmi("try", directory, "--stream", "--route", route)
    assert (result.returncode, result.stdout[:4]) == (1, "200 ")
    assert "the output formatter shout raised ZeroDivisionError: division by zero" in result.stdout.splitlines()[-1]


def test_stream_of_a_handle_function_that_raises(model_dir: ModelDirectory) -> None:
    script = (
        "from djl_python import Output\n\n\ndef parts():\n    yield 'one'\n    raise KeyError('two')\n\n\n"
        "def handle(inputs):\n    return None if inputs.is_empty() else Output().add_stream_content(parts())\n"
    )
    result = lmi("try", model_dir({"model.py": script}), "--stream")
    assert (result.returncode, result.stdout[:4]) == (1, "200 ")
