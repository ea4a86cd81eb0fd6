"""KServe's inference protocol (v2) with texts, on a backend that takes no tensors."""

from typing import Any

import orjson
import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve, parameters

INFER = "/v2/models/model/infer"
HEAD = {"model_name": "model", "model_version": "1"}
TEXT = "Deep Learning is a really cool field."


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


def tensor(name: str, datatype: str, *data: Any, batched: bool = True) -> dict[str, Any]:
    return {"name": name, "shape": [1, len(data)] if batched else [len(data)], "datatype": datatype, "data": [*data]}


EXCLUDE = tensor("exclude_input_in_output", "BOOL", True)


async def infer(server: RunningServer, *inputs: dict[str, Any], text: str = "hi", **members: Any) -> Answer:
    return await server.post(INFER, {"inputs": [tensor("text_input", "BYTES", text), EXCLUDE, *inputs], **members})


async def outputs(server: RunningServer, *inputs: dict[str, Any], **members: Any) -> dict[str, Any]:
    answer = await infer(server, *inputs, **members)
    assert answer.status == 200, answer.body
    return {each["name"]: (each["datatype"], each["shape"], each["data"]) for each in answer.json()["outputs"]}


async def test_text(server: RunningServer) -> None:
    answer = await infer(server, text="client input", id="42")
    text = {"name": "text_output", "datatype": "BYTES", "shape": [1], "data": [TEXT]}
    assert answer.json() == {"id": "42", **HEAD, "outputs": [text]}
    assert server.scripted.history[-1].prompt == "client input"


def column(name: str, datatype: str, *data: Any) -> dict[str, Any]:
    return {"name": name, "shape": [len(data), 1], "datatype": datatype, "data": [*data]}


async def test_batch(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two three"), Script("four five six"))
    counts = [tensor("return_num_input_tokens", "BOOL", True), tensor("return_num_output_tokens", "BOOL", True)]
    inputs = [column("text_input", "BYTES", "hi", "hi you"), column("max_tokens", "INT32", 1, 2), EXCLUDE, *counts]
    answer = await server.post(INFER, {"inputs": inputs})
    assert answer.status == 200, answer.body
    found = {each["name"]: (each["shape"], each["data"]) for each in answer.json()["outputs"]}
    assert found["text_output"] == ([2], ["one", "four five"])
    assert found["num_input_tokens"] == ([2], [1, 2])
    assert found["num_output_tokens"] == ([2], [1, 2])
    assert [request.prompt for request in server.scripted.history] == ["hi", "hi you"]


async def test_tensors_without_rows_are_for_all_texts_of_a_batch(server: RunningServer) -> None:
    words = tensor("stop_words", "BYTES", "x", "y", batched=False)
    inputs = [column("text_input", "BYTES", "hi", "you"), words, EXCLUDE]
    answer = await server.post(INFER, {"inputs": inputs})
    assert answer.status == 200, answer.body
    found = [(request.prompt, request.parameters.stop_sequences) for request in server.scripted.history]
    assert found == [("hi", ["x", "y"]), ("you", ["x", "y"])]


async def test_stream_of_a_batch(server: RunningServer) -> None:
    inputs = [column("text_input", "BYTES", "hi", "you"), tensor("stream", "BOOL", True)]
    answer = await server.post(INFER, {"inputs": inputs})
    assert answer.status == 400
    assert answer.json()["error"] == "`text_input` must be a single text in a stream. Given: 2"


async def test_binary(server: RunningServer) -> None:
    parameters = {"binary_data_output": True}
    inputs = [{"name": "text_input", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 6}}]
    header = orjson.dumps({"inputs": inputs, "parameters": parameters})
    headers = {"Inference-Header-Content-Length": str(len(header))}
    answer = await server.post(INFER, data=header + b"\2\0\0\0hi", headers=headers)
    assert answer.content_type == "application/octet-stream"
    length = int(answer.headers["Inference-Header-Content-Length"])
    assert answer.body[length:] == len("hi" + TEXT).to_bytes(4, "little") + b"hi" + TEXT.encode()
    assert server.scripted.history[-1].prompt == "hi"


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        (tensor("max_tokens", "INT32", 3), "max_new_tokens", 3),
        (tensor("max_tokens", "INT32", 3, batched=False), "max_new_tokens", 3),
        (tensor("temperature", "FP32", 0.5), "temperature", 0.5),
        (tensor("temperature", "FP32", 0.5), "do_sample", True),
        (tensor("top_k", "INT32", 5), "top_k", 5),
        (tensor("random_seed", "UINT64", 5), "seed", 5),
        (tensor("beam_width", "INT32", 2), "num_beams", 2),
        (tensor("stop_words", "BYTES", "a", "b"), "stop_sequences", ["a", "b"]),
        (tensor("stop_words", "BYTES", ""), "stop_sequences", None),
        (tensor("bad_words", "BYTES", "a"), "bad_sequences", ["a"]),
        (tensor("length_penalty", "FP32", 2), "length_penalty", 2),
        (tensor("ignore_eos", "BOOL", True), "ignore_eos_token", True),
        (tensor("pad_id", "INT32", 2), "stop_token_ids", None),
        (tensor("sampling_parameters", "BYTES", '{"seed": 7}'), "seed", 7),
        (tensor("stream", "BOOL", False), "max_new_tokens", 30),
        (tensor("return_context_logits", "BOOL", False), "max_new_tokens", 30),
    ],
)
async def test_parameters(server: RunningServer, given: dict[str, Any], name: str, value: object) -> None:
    assert "text_output" in await outputs(server, given)
    assert getattr(parameters(server), name) == value


async def test_parameters_of_the_request(server: RunningServer) -> None:
    found = await outputs(server, parameters={"max_tokens": 2})
    assert found == {"text_output": ("BYTES", [1], ["Deep Learning"])}
    answer = await infer(server, parameters={"max_tokens": "2", "mine": 5})
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "mine"
    assert answer.json()["outputs"][0]["data"] == ["Deep Learning"]


async def test_further_outputs(server: RunningServer) -> None:
    names = ["finish_reason", "cumulative_logprob", "num_input_tokens", "num_output_tokens"]
    asked = [tensor(f"return_{name}", "BOOL", True) for name in [*names, "log_probs"]]
    assert await outputs(server, tensor("max_tokens", "INT32", 2), *asked, text="client input") == {
        "text_output": ("BYTES", [1], ["Deep Learning"]),
        "finish_reason": ("BYTES", [1], ["length"]),
        "cumulative_logprob": ("FP32", [1], [-0.5]),
        "num_output_tokens": ("UINT32", [1], [2]),
        "cum_log_probs": ("FP32", [1], [-0.5]),
        "output_log_probs": ("FP32", [1, 2], [-0.25, -0.25]),
        "num_input_tokens": ("UINT32", [1], [2]),
    }


async def test_an_output_that_is_asked_for_by_name(server: RunningServer) -> None:
    found = await outputs(server, tensor("max_tokens", "INT32", 1), outputs=[{"name": "finish_reason"}])
    assert found == {"finish_reason": ("BYTES", [1], ["length"])}
    refused = await infer(server, outputs=[{"name": "text"}])
    assert refused.status == 400
    assert refused.json()["error"].startswith("`outputs` names `text`, which is not an output of this request.")


async def test_several_sequences(server: RunningServer) -> None:
    found = await outputs(server, tensor("n", "INT32", 2), tensor("return_log_probs", "BOOL", True))
    assert found["text_output"] == ("BYTES", [2], [TEXT, TEXT])
    assert found["cum_log_probs"] == ("FP32", [2], [-1.75, -3.5])
    assert found["output_log_probs"] == ("FP32", [2, 7], [-0.25] * 7 + [-0.5] * 7)


async def test_values_beyond_ascii(server: RunningServer) -> None:
    server.scripted.enqueue(Script("grün 🙂"))
    assert (await outputs(server))["text_output"] == ("BYTES", [1], ["grün 🙂"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (tensor("max_tokens", "FP32", 3.5), "`max_tokens` must be a valid integer. Given: 3.5"),
        (tensor("stop_words", "BYTES", *["a"] * 65), "`stop_words` must have at most 64 items"),
        (tensor("max_tokens", "INT32", 0), "`max_tokens` must be greater than or equal to 1. Given: 0"),
        (tensor("max_tokens", "INT32", 3, 4), "`max_tokens` must be a valid integer. Given: [3, 4]"),
        (tensor("return_logits", "BOOL", True), "`return_logits` is not a field of the scripted backend's parameters."),
        (tensor("stream", "BOOL", True), "`stream` must be false on this route: use generate_stream for streams."),
        (tensor("return_generation_logits", "BOOL", True), "`return_generation_logits` must be false, because the"),
    ],
)
async def test_invalid_request(server: RunningServer, given: dict[str, Any], message: str) -> None:
    answer = await infer(server, given)
    assert answer.status == 400
    assert answer.json()["error"].startswith(message)


async def test_the_prompt_is_one_text(server: RunningServer) -> None:
    several = await server.post(INFER, {"inputs": [tensor("text_input", "BYTES", "a", "b")]})
    assert several.json() == {"error": "`text_input` must be a valid string. Given: ['a', 'b']"}
    missing = await server.post(INFER, {"inputs": [tensor("input_ids", "INT32", 1)]})
    assert missing.json() == {"error": "`text_input` is required"}
    inputs = [{"name": "text_input", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}]
    header = orjson.dumps({"inputs": inputs})
    headers = {"Inference-Header-Content-Length": str(len(header))}
    no_text = await server.post(INFER, data=header + b"\1\0\0\0\xff", headers=headers)
    assert no_text.json()["error"].startswith("`text_input` must be valid UTF-8: ")


async def test_failure(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two", error="the engine fell over"))
    answer = await infer(server)
    assert (answer.status, answer.json()) == (500, {"error": "the engine fell over"})


async def test_timeout(server: RunningServer) -> None:
    script = Script("one", hold=True)
    server.scripted.enqueue(script)
    answer = await infer(server, parameters={"timeout": 50_000})
    assert answer.status == 504
    assert script.closed.is_set()


async def test_generate_has_log_probs_too(server: RunningServer) -> None:
    body = {"text_input": "hi", "max_tokens": 2, "return_log_probs": True, "return_context_logits": False}
    found = (await server.post("/v2/models/model/generate", body)).json()
    assert (found["cum_log_probs"], found["output_log_probs"]) == (-0.5, [-0.25, -0.25])
