"""Requests with what nobody here knows: answered, said in the log, and listed in a header; or refused where strict."""

import asyncio
from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

HEADER = "X-Lmi-Ignored-Parameters"
STRICT = "option.strict_parameters=true\n"

# Bodies with misspelt names; ROUTES has what is listed of each. The first of these is what is refused where strict.
LMI = {"inputs": "Hey", "parameters": {"temprature": 0.5, "top_p": 0.9}, "strem": True}
TGI = {"inputs": "Hey", "parameters": {"temprature": 0.5}, "options": {"use_cache": True}}
ROOT = TGI | {"strem": True}  # which knows `options`
HAPPY = {"prompt": "Hey", "temprature": 0.5}
CHAT = {"messages": [{"role": "user", "content": "Hey"}], "temprature": 0.5}
NO_FIELD = "`{}` is not a field of this request."
ROUTES: list[tuple[str, dict[str, Any], str]] = [
    ("/invocations", LMI, "strem, temprature"),
    ("/invocations", CHAT, "temprature"),
    ("/predictions/model", LMI, "strem, temprature"),
    ("/endpoints/mine/invocations", LMI, "strem, temprature"),
    ("/endpoints/mine/invocations-response-stream", LMI | {"stream": True}, "strem, temprature"),
    ("/", ROOT, "strem, temprature"),
    ("/generate", TGI, "options, temprature"),
    ("/generate_stream", TGI, "options, temprature"),
    ("/v1/generate", HAPPY, "temprature"),
    ("/v1/generate_stream", HAPPY, "temprature"),
]


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


@pytest.mark.parametrize(("path", "body", "listed"), ROUTES)
async def test_unknown_parameters_are_listed(
    server: RunningServer, path: str, body: dict[str, Any], listed: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        answer = await server.post(path, body)
        assert (answer.status, answer.headers[HEADER]) == (200, listed), answer.body
    said = [line for line in caplog.messages if "is ignored" in line]
    assert len(said) == len(listed.split(", "))
    assert "`temprature` is unknown and is ignored. Did you mean `temperature`?" in said[-1]


async def test_misspelt_adapters(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    answer = await server.post("/invocations", {"inputs": "Hey", "adpters": "french"})
    assert (answer.status, answer.headers[HEADER]) == (200, "adpters")
    assert "Did you mean `adapters`?" in caplog.messages[-1]


async def test_answer_to_what_is_known_has_no_such_header(server: RunningServer) -> None:
    body = {"inputs": "Hey", "parameters": {"top_p": 0.9, "zzz": None}, "zzz": None}
    answer = await server.post("/invocations", body)
    assert (answer.status, HEADER in answer.headers) == (200, False)


@pytest.mark.parametrize(("path", "body", "listed"), ROUTES)
async def test_strict_parameters(
    serve: Serve, model_dir: ModelDirectory, path: str, body: dict[str, Any], listed: str
) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + STRICT}))
    answer = await server.post(path, body)
    assert (answer.status, HEADER in answer.headers) == (422 if body in (TGI, ROOT, HAPPY) else 424, False)
    name = listed.partition(",")[0]
    assert NO_FIELD.format(name) in answer.body.decode()


async def test_strict_parameters_of_the_backend(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + STRICT}))
    answer = await server.post("/invocations", {"inputs": "Hey", "parameters": {"temprature": 1}})
    message = "`temprature` is not a field of the scripted backend's parameters. Did you mean `temperature`?"
    assert (answer.status, answer.json()["error"]) == (424, message)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/tokenizer", {"prompt": "Hey"}),
        ("/v2/decode", {"tokens": []}),
        ("/v1/split_text", {"text": "Hey"}),
        ("/v1/metadata_text", {"text": "Hey"}),
    ],
)
async def test_happy_vllm_s_other_endpoints(
    serve: Serve, model_dir: ModelDirectory, path: str, body: dict[str, Any], strict: bool
) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + (STRICT if strict else "")}))
    answer = await server.post(path, body | {"zzz": 1})
    assert (answer.status, answer.headers.get(HEADER)) == ((422, None) if strict else (200, "zzz"))


@pytest.mark.parametrize("strict", [False, True])
async def test_abort_request(serve: Serve, model_dir: ModelDirectory, strict: bool) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + (STRICT if strict else "")}))
    script = Script("one", hold=True)
    server.scripted.enqueue(script)
    request = asyncio.create_task(server.post("/v1/generate", {"prompt": "Hey"}, headers={"x-request-id": "mine"}))
    await script.started.wait()
    answer = await server.post("/v1/abort_request", {"request_id": "mine", "zzz": 1})
    assert (answer.status, answer.headers.get(HEADER)) == ((422, None) if strict else (200, "zzz"))
    if strict:
        assert (await server.post("/v1/abort_request", {"request_id": "mine"})).status == 200
    assert (await request).json()["finish_reasons"] == ["abort"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("parameters", "script"), [({"top_p": 2}, Script("a")), ({}, Script("", error="it broke"))])
async def test_errors_list_them_too(
    server: RunningServer, parameters: dict[str, Any], script: Script, stream: bool
) -> None:
    server.scripted.enqueue(script)
    body = {"inputs": "Hey", "parameters": {"zzz": 1, **parameters}, "stream": stream}
    answer = await server.post("/invocations", body)
    assert (answer.status, answer.headers[HEADER]) == (424 if parameters else 500, "zzz")


async def test_names_are_harmless_in_a_header(server: RunningServer) -> None:
    parameters = {"a\r\nSet-Cookie: b": 1, "\u00fc,\u00fc": 1, **{f"n{i}": i for i in range(1000)}}
    answer = await server.post("/invocations", {"inputs": "Hey", "parameters": parameters})
    assert answer.headers[HEADER].startswith("a??Set-Cookie??b, ???, n0, n1, ")
    assert answer.headers[HEADER].endswith(", ...982-more")
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/invocations", {"inputs": "Hey", "adapter": "french"}),
        ("/invocations", {"inputs": "Hey", "parameters": {"adapter": "french"}}),
        ("/invocations", {"inputs": "Hey", "parameters": {"output_formatter": "none such"}}),
        ("/generate", {"inputs": "Hey", "parameters": {"lora_id": "french"}}),
        ("/v1/generate", {"prompt": "Hey", "lora_request": "french"}),
    ],
)
async def test_what_would_change_the_answer_is_refused(server: RunningServer, path: str, body: dict[str, Any]) -> None:
    answer = await server.post(path, body)
    assert (answer.status, HEADER in answer.headers) == (422 if path != "/invocations" else 424, False)


FORMATTER = """\
import json
from djl_python.output_formatter import TextGenerationOutput, output_formatter


@output_formatter
def f(request_output: TextGenerationOutput) -> str:
    sequence = request_output.sequences[request_output.best_sequence_index]
    token, *_, last = sequence.get_next_token()
    return json.dumps(request_output.input.parameters) if last else ""
"""


async def test_the_model_s_own_formatter_reads_its_own_parameters(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": FORMATTER}))
    body = {"inputs": "Hey", "parameters": {"tone": "polite", "max_new_tokens": 2}}
    answer = await server.post("/invocations", body)
    assert answer.json() == {"tone": "polite", "max_new_tokens": 2, "stream": False}


async def test_triton_drops_unknown_scalars_only(server: RunningServer) -> None:
    """Anything else would be a tensor, and Triton refuses unknown ones."""
    answer = await server.post("/v2/models/model/generate", {"text_input": "Hey", "temprature": 1})
    assert (answer.status, answer.headers[HEADER]) == (200, "temprature")
    answer = await server.post("/v2/models/model/generate", {"text_input": "Hey", "temprature": [1, 2]})
    assert answer.status == 400
    assert "`temprature` is not a field of the scripted backend's parameters." in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "name"), [("/invocations", "inputs"), ("/generate", "inputs"), ("/v1/generate", "prompt")]
)
async def test_values_that_ask_for_nothing(server: RunningServer, path: str, name: str) -> None:
    neutral = {"best_of": 1, "seed": -1, "frequency_penalty": 0, "repetition_penalty": 1.0, "top_p": 1.0}
    if name == "inputs":
        neutral |= {"watermark": False, "top_n_tokens": 0, "typical_p": 1.0, "decoder_input_details": False}
    body = {name: "Hey", "parameters": neutral} if name == "inputs" else {name: "Hey", **neutral}
    answer = await server.post(path, body)
    assert (answer.status, HEADER in answer.headers) == (200, False), answer.body
    assert server.scripted.history[-1].parameters.seed is None
