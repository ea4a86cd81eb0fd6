"""TestHandler as LMI's page on testing scripts uses it, and the inputs that it is called with."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import numpy
import pytest

from djl_python.async_utils import create_non_stream_output, create_stream_chunk_output
from djl_python.test_model import (
    TestHandler,
    create_json_request,
    create_npz_request,
    create_numpy_request,
    create_request,
    create_text_request,
    extract_output_as_bytes,
    extract_output_as_npz,
    extract_output_as_numpy,
    extract_output_as_string,
    load_properties,
    update_properties_with_env_vars,
)
from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.djl_names.outputs import Output

SCRIPTS = Path(__file__).parents[1] / "model_scripts"
HELLO_WORLD = str(SCRIPTS / "hello_world")


@pytest.fixture
def in_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SCRIPTS)
    monkeypatch.setattr(sys, "path", [*sys.path])


def module_of(**functions: object) -> ModuleType:
    module = ModuleType("made_here")
    vars(module).update(functions)
    return module


def test_file_of_a_model_directory(in_its_folder: None) -> None:
    handler = TestHandler("model.py", HELLO_WORLD)
    assert handler.serving_properties["my_var"] == "value"
    output = handler.inference(create_json_request({"Hello": "world"}))
    assert json.loads(extract_output_as_string(output)) == {"Hello": "world", "my_var": "value"}
    assert Path.cwd() == Path(HELLO_WORLD)
    with pytest.raises(ValueError, match="entry-point file not found"):
        TestHandler("none.py", HELLO_WORLD)


def test_module_with_properties_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTION_MODEL_ID", "of/the-hub")
    monkeypatch.setenv("OPTION_ENTRYPOINT", "model.py")
    monkeypatch.setenv("TENSOR_PARALLEL_DEGREE", "max")
    monkeypatch.setenv("OPTION_MY_VAR", "other")
    seen: dict[str, str] = {}
    handler = TestHandler(module_of(handle=lambda inputs: seen.update(inputs.get_properties())))
    assert handler.inference(Input()).code == 204
    expected = {"model_id": "of/the-hub", "entryPoint": "model.py", "tensor_parallel_degree": "max", "my_var": "other"}
    assert seen.items() >= expected.items()
    assert update_properties_with_env_vars(load_properties(HELLO_WORLD))["my_var"] == "value"


def test_functions_of_every_kind() -> None:
    async def one(inputs: Input) -> Output:
        await asyncio.sleep(0)
        return create_non_stream_output({"text": inputs.get_as_json()["inputs"]})

    async def several(inputs: Input) -> AsyncIterator[Output]:
        yield create_stream_chunk_output({"n": 1}, False)
        yield create_stream_chunk_output({"n": 2}, True)

    async def stream(inputs: Input) -> AsyncIterator[Output]:
        return several(inputs)

    request = create_json_request({"inputs": "x"})
    answers = [TestHandler(module_of(handle=each)).inference(request).content.values for each in (one, several, stream)]
    assert answers == [[b'{"text": "x"}\n'], [b'{"n": 1}\n', b'{"n": 2}\n'], [b'{"n": 1}\n', b'{"n": 2}\n']]


def test_batch_and_other_functions() -> None:
    def sizes(inputs: Input) -> Output:
        output = Output()
        for index, item in enumerate(inputs.get_batches()):
            output.add_as_json([item.get_as_json(), item.get_property("x")], batch_index=index)
        return output

    handler = TestHandler(module_of(sizes=sizes))
    handler.serving_properties["handler"] = "sizes"
    output = handler.inference_batch([1, 2], [{"x": "a"}, {"x": "b"}])
    assert [json.loads(value) for value in output.content.values] == [[1, "a"], [2, "b"]]
    request = create_text_request("x")
    request.function_name = "other"
    with pytest.raises(AttributeError, match="made_here has no function `other`"):
        handler.inference(request)


def test_rolling_batch_that_is_none() -> None:
    handler = TestHandler(module_of(handle=lambda inputs: Output().add("text")))
    with pytest.raises(TypeError, match=r"answered with chunks from Output\.binary_encode"):
        handler.inference_rolling_batch([1])
    with pytest.raises(ValueError, match="a batch of 2 was answered with 1 contents"):
        handler.inference_rolling_batch([1, 2])


def test_requests(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a\n1\n")
    request = create_request([f"data={table}", 'more={"x": 1}'], ["name=value"])
    assert request.get_property("content-type") == "text/csv"
    assert (request.get_property("name"), request.get_as_json("more")) == ("value", {"x": 1})
    assert request.get_as_csv("data") == [{"a": "1"}]
    assert create_request(['{"x": 1}']).get_property("content-type") == "application/json"
    assert create_text_request("x").get_as_string() == "x"
    with pytest.raises(ValueError, match="Invalid model parameter: x"):
        create_request([], ["x"])
    arrays = [numpy.arange(3)]
    assert create_numpy_request(arrays).get_as_numpy()[0].tolist() == [0, 1, 2]
    assert create_npz_request(arrays).get_as_npz()[0].tolist() == [0, 1, 2]
    assert extract_output_as_numpy(Output().add_as_numpy(arrays))[0].tolist() == [0, 1, 2]
    assert extract_output_as_npz(Output().add_as_npz(arrays))[0].tolist() == [0, 1, 2]
    assert extract_output_as_bytes(Output().add(b"x")) == b"x"


def test_command() -> None:
    command = [sys.executable, "-m", "djl_python.test_model", "--model-dir", HELLO_WORLD, "--input", '{"a": 1}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("output: Output 200 OK")
    assert '"my_var":"value"' in done.stdout
