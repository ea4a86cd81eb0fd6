"""Metadata of the server and its models in KServe's protocol."""

from importlib.metadata import version
from typing import Any

import pytest

from lmi_handlers.triton.infer import ANSWER_INPUTS, INPUTS, OUTPUT_TYPES
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.triton.tensor_backend import serve_backwards

MODEL = "/v2/models/model"
HANDLE = "from djl_python import Output\ndef handle(inputs):\n    return Output()\n"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


def named(tensors: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in tensors}


async def test_server(server: RunningServer) -> None:
    answer = await server.get("/v2")
    assert (answer.status, answer.content_type) == (200, "application/json")
    extensions = ["binary_tensor_data", "generate", "model_configuration", "parameters", "statistics"]
    assert answer.json() == {"name": "lmi-handlers", "version": version("lmi-handlers"), "extensions": extensions}


@pytest.mark.parametrize("path", ["/v2/health/ready", f"{MODEL}/ready", f"{MODEL}/versions/1/ready"])
async def test_readiness(server: RunningServer, path: str) -> None:
    assert (await server.get(path)).status == 200
    server.model.ready = False
    answer = await server.get(path)
    assert (answer.status, answer.json()) == (503, {"error": "model model is loading"})
    assert (await server.get("/v2/health/live")).status == 200


@pytest.mark.parametrize("verb", ["", "/config", "/ready"])
async def test_unknown_model_or_version(server: RunningServer, verb: str) -> None:
    unknown = await server.get(f"/v2/models/modell{verb}")
    assert (unknown.status, unknown.json()["error"][:31]) == (404, "model `modell` is not served. D")
    other = await server.get(f"{MODEL}/versions/2{verb}")
    assert (other.status, other.json()) == (404, {"error": "model `model` has no version 2"})


async def test_model_of_texts(server: RunningServer) -> None:
    found = (await server.get(MODEL)).json()
    assert (found["name"], found["versions"], found["platform"]) == ("model", ["1"], "scripted")
    assert found["inputs"][0] == {"name": "text_input", "datatype": "BYTES", "shape": [1]}
    assert [each["name"] for each in found["inputs"]] == ["text_input", *INPUTS, *ANSWER_INPUTS]
    assert {each["name"]: each["datatype"] for each in found["outputs"]} == OUTPUT_TYPES
    assert (await server.get(f"{MODEL}/versions/1")).json() == found


async def test_every_input_of_the_metadata_is_taken(server: RunningServer) -> None:
    values = {"BYTES": "a", "BOOL": False, "INT32": 1, "UINT64": 1, "FP32": 1.0}
    for each in (await server.get(MODEL)).json()["inputs"]:
        if each["name"] != "text_input":
            inputs = [
                {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["hi"]},
                each | {"shape": [1], "data": [values[each["datatype"]]]},
            ]
            answer = await server.post(f"{MODEL}/infer", {"inputs": inputs})
            assert answer.status == 200, (each["name"], answer.body)


async def test_configuration_of_texts(server: RunningServer) -> None:
    found = (await server.get(f"{MODEL}/config")).json()
    inputs = named(found.pop("input"))
    assert inputs["text_input"] == {"name": "text_input", "data_type": "TYPE_STRING", "dims": [1], "optional": False}
    assert inputs["stop_words"] == {"name": "stop_words", "data_type": "TYPE_STRING", "dims": [-1], "optional": True}
    assert inputs["max_tokens"] == {"name": "max_tokens", "data_type": "TYPE_INT32", "dims": [1], "optional": True}
    assert {"name": "text_output", "data_type": "TYPE_STRING", "dims": [-1]} in found.pop("output")
    assert found == {
        "name": "model",
        "platform": "",
        "backend": "scripted",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": 0,
        "model_transaction_policy": {"decoupled": True},
    }


async def test_model_of_tensors(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_backwards(serve, model_dir)
    found = (await server.get(MODEL)).json()
    assert found["inputs"][:2] == [
        {"name": "request_output_len", "datatype": "INT32", "shape": [1, 1]},
        {"name": "input_ids", "datatype": "INT32", "shape": [1, -1]},
    ]
    assert [each["name"] for each in found["outputs"]] == ["output_ids", "cum_log_probs", "note"]
    configured = (await server.get(f"{MODEL}/config")).json()
    assert configured["input"][1] == {
        "name": "input_ids",
        "data_type": "TYPE_INT32",
        "dims": [1, -1],
        "optional": False,
    }
    assert configured["input"][2] == {"name": "streaming", "data_type": "TYPE_BOOL", "dims": [1], "optional": True}
    assert configured["output"][0] == {"name": "output_ids", "data_type": "TYPE_INT32", "dims": [-1, -1]}


async def test_model_with_a_handle_function(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"model.py": HANDLE}))
    found = (await server.get(MODEL)).json()
    assert (found["inputs"], found["outputs"], found["platform"]) == ([], [], "model_function")
    assert not (await server.get(f"{MODEL}/config")).json()["model_transaction_policy"]["decoupled"]
