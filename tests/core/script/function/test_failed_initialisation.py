"""Model functions whose call without content fails, in which they load their models, over a real socket."""

import pytest

from lmi_core.errors import ConfigurationError
from tests.conftest import ModelDirectory, RunningServer, Serve

# Loads its model in the call without content, or else with the first request.
LAZY = """\
import os
from pathlib import Path
from djl_python import Input, Output

model = None

def load(properties):
    weights = Path(properties["weights"])
    if not weights.exists():
        raise OSError(f"there are no weights in {weights.name}")
    return weights.read_text()

def handle(inputs: Input):
    global model
    if model is None:
        model = load(inputs.get_properties())
    if inputs.is_empty():
        return None
    return Output().add(model)
"""

# Loads it in the call without content only.
ONCE = """\
from djl_python import Input, Output

model = None

def handle(inputs: Input):
    global model
    if inputs.is_empty():
        raise OSError("there are no weights")
    return Output().add(model.predict(inputs.get_as_bytes()))
"""

# Has nothing to do in it, and does not expect it.
CARELESS = """\
from djl_python import Input, Output

def handle(inputs: Input):
    return Output().add_as_json({"echo": inputs.get_as_json()["text"]})
"""


async def serving(serve: Serve, model_dir: ModelDirectory, script: str, properties: str = "") -> RunningServer:
    return await serve(model_dir({"serving.properties": properties, "model.py": script}))


async def test_server_starts_and_requests_are_told_why(
    serve: Serve, model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serving(serve, model_dir, LAZY, "option.weights=x.bin\nminWorkers=2\nmaxWorkers=2\n")
    assert (await server.get("/ping")).status == 200
    for _ in range(3):
        answer = await server.post("/invocations", {})
        assert answer.status == 424
        assert answer.json()["error"] == "handle in model.py raised OSError: there are no weights in x.bin"
    (failure,) = [
        record.message for record in caplog.records if "failed in the initial call without content" in record.message
    ]
    assert (
        "model.py: handle failed in the initial call without content, in which it loads its model. It still" in failure
    )
    assert 'model.py", line 10, in load\n' in failure
    assert failure.endswith("OSError: there are no weights in x.bin")
    assert "lmi_core" not in failure


async def test_function_that_can_load_its_model_later(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serving(serve, model_dir, LAZY, "option.weights=x.bin\n")
    assert (await server.post("/invocations", {})).status == 424
    (server.model.plan.directory / "x.bin").write_text("weights")
    assert (await server.post("/invocations", {})).body == b"weights"


async def test_a_request_does_not_choose_what_is_loaded(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serving(serve, model_dir, LAZY, "option.weights=x.bin\n")
    other = server.model.plan.directory / "other.bin"
    other.write_text("the client's")
    headers = {"X-Amzn-SageMaker-Custom-Attributes": f"weights={other}"}
    answer = await server.post("/invocations", {}, headers={"weights": str(other), **headers})
    assert (answer.status, "there are no weights in x.bin" in answer.json()["error"]) == (424, True)


async def test_message_names_the_cause_where_requests_fail_for_another_reason(
    serve: Serve, model_dir: ModelDirectory
) -> None:
    server = await serving(serve, model_dir, ONCE)
    assert (await server.post("/invocations", {})).json() == {
        "error": "handle in model.py raised AttributeError: 'NoneType' object has no attribute 'predict'"
        " (when it was loaded, it raised OSError: there are no weights)",
        "code": 424,
    }


async def test_function_that_does_not_expect_the_call(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serving(serve, model_dir, CARELESS)
    assert (await server.post("/invocations", {"text": "hello"})).json() == {"echo": "hello"}
    wrong = await server.post("/invocations", {})
    assert wrong.json()["error"] == "handle in model.py raised KeyError: 'text'"


async def test_call_that_is_answered_with_an_error(serve: Serve, model_dir: ModelDirectory) -> None:
    script = "from djl_python import Output\n\n\ndef handle(inputs):\n    return Output().error('no weights')\n"
    server = await serving(serve, model_dir, script)
    answer = await server.post("/invocations", {})
    assert (answer.status, answer.json()["error"]) == (424, "no weights")


@pytest.mark.parametrize("kind", ["async def handle", "def handle"])
async def test_rolling_and_asynchronous_functions(serve: Serve, model_dir: ModelDirectory, kind: str) -> None:
    properties = "option.rolling_batch=auto\n"
    server = await serving(serve, model_dir, f"{kind}(inputs):\n    raise OSError('no weights')\n", properties)
    answer = await server.post("/invocations", {})
    assert (answer.status, answer.json()["error"]) == (424, "handle in model.py raised OSError: no weights")


REGISTERS = """\
from djl_python import Output

def register_adapter(inputs):
    raise ValueError("not this one")

def handle(inputs):
    INITIALISE
    return Output().add("served")
"""


async def test_adapters_that_fail_after_it_are_only_logged(
    serve: Serve, model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    script = REGISTERS.replace("INITIALISE", "inputs.get_as_json()")
    server = await serve(model_dir({"model.py": script, "adapters/french/x": ""}))
    assert (await server.post("/invocations", {})).body == b"served"
    assert "register_adapter then failed for the adapter french\n" in caplog.text


async def test_adapters_that_fail_by_themselves_stop_the_start(serve: Serve, model_dir: ModelDirectory) -> None:
    script = REGISTERS.replace("INITIALISE", "pass")
    with pytest.raises(ConfigurationError, match="not this one"):
        await serve(model_dir({"model.py": script, "adapters/french/x": ""}))
