"""LMI's asynchronous mode over a real socket."""

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import orjson
import pytest

from lmi_core.generation.output import GenerationStep
from lmi_core.generation.request import ValidRequest
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.lmi.async_facts import MODELS, SAID, ask, difference, read_facts
from tests.handlers.lmi.test_dynamic import AutoPlugin
from tests.lmi_process import lmi

MODE = "option.async_mode=true\n"
ASYNC = SCRIPTED + MODE + "option.tool_call_parser=hermes\n"
ENTRY_POINT = "option.entryPoint=djl_python.lmi_vllm.vllm_async_service\n"
INPUTS = {"inputs": "What is Deep Learning?"}
DETAILS = INPUTS | {"parameters": {"details": True}}
STREAM = {"stream": True}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": ASYNC}))


@pytest.mark.parametrize("model", MODELS)
async def test_answers_as_the_containers_write_them(serve: Serve, model_dir: ModelDirectory, model: str) -> None:
    server = await serve(model_dir({"serving.properties": ASYNC, **MODELS[model]}))
    facts = [fact for fact in read_facts() if fact["model"] == model]
    assert facts
    found = {fact["name"]: difference(fact, await ask(server, fact)) for fact in facts}
    assert {name: how for name, how in found.items() if how is not None} == {}


@pytest.mark.parametrize(
    ("said", "parameters", "reason", "count"),
    [
        (SAID, {}, "stop", 5),
        (SAID, {"max_new_tokens": 2}, "length", 2),
        (SAID, {"stop_sequences": [" is"]}, "stop", 3),
    ],
)
async def test_details_are_right_where_the_containers_are_not(
    server: RunningServer, said: str, parameters: dict[str, Any], reason: str, count: int
) -> None:
    server.scripted.enqueue(Script(said), Script(said))
    body = INPUTS | {"parameters": {"details": True, **parameters}}
    whole = (await server.post("/invocations", body)).json()
    last = (await server.post("/invocations", body | STREAM)).json_lines()[-1]
    for details in (whole["details"], last["details"]):
        assert (details["finish_reason"], details["generated_tokens"]) == (reason, count)
    assert whole["generated_text"] == last["generated_text"]


async def test_impossible_tokens_have_the_least_log_probability_of_vllm(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = ScriptedBackend.generate

    async def impossible(self: ScriptedBackend, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        async with aclosing(generate(self, request)) as steps:
            async for step in steps:
                for token in step.tokens:
                    token.log_prob = -math.inf
                yield step

    monkeypatch.setattr(ScriptedBackend, "generate", impossible)
    whole = (await server.post("/invocations", DETAILS)).json()
    lines = (await server.post("/invocations", DETAILS | STREAM)).json_lines()
    for tokens in (whole["details"]["tokens"], [line["token"] for line in lines]):
        assert {token["logprob"] for token in tokens} == {-9999}


async def test_a_stream_of_several_sequences_has_the_text_of_each(server: RunningServer) -> None:
    body = INPUTS | {"parameters": {"n": 2, "max_new_tokens": 2}}
    lines = (await server.post("/invocations", body | STREAM)).json_lines()
    ends = [(line["index"], line["generated_text"]) for line in lines if line["generated_text"] is not None]
    assert ends == [(0, "Deep Learning"), (1, "Deep Learning")]


@pytest.mark.parametrize("name", ["best_of", "num_beams"])
async def test_the_best_of_several_sequences_is_no_stream(server: RunningServer, name: str) -> None:
    body = INPUTS | {"parameters": {name: 2, "max_new_tokens": 1}}
    refused = await server.post("/invocations", body | STREAM)
    message = f"`{name}` must be at most 1, the number of sequences in the stream. Given: 2"
    assert (refused.status, refused.json()) == (424, {"error": message, "code": 424})
    assert (await server.post("/invocations", body)).json() == {"generated_text": "Deep"}


@pytest.mark.parametrize(
    ("parameters", "samples", "temperature"),
    [
        ({}, True, 1.0),
        ({"temperature": 0.5}, True, 0.5),
        ({"do_sample": False, "temperature": 0.5}, False, 0.5),
        ({"num_beams": 2}, False, 1.0),
    ],
)
async def test_sampling(server: RunningServer, parameters: dict[str, Any], samples: bool, temperature: float) -> None:
    await server.post("/invocations", INPUTS | {"parameters": parameters})
    taken = server.scripted.history[-1].parameters
    assert (taken.do_sample, taken.temperature) == (samples, temperature)


@pytest.mark.parametrize("form", [MODE, ENTRY_POINT], ids=["mode", "entry_point"])
async def test_the_containers_own_configuration(serve: Serve, model_dir: ModelDirectory, form: str) -> None:
    properties = f"option.rolling_batch=disable\n{form}"
    server = await serve(model_dir({"serving.properties": properties}), plugins=[AutoPlugin()])
    assert (await server.post("/invocations", DETAILS)).json()["details"]["prefill"] == []


async def test_other_directories_keep_their_schemas(serve: Serve, model_dir: ModelDirectory) -> None:
    plain = await serve(model_dir({"serving.properties": SCRIPTED}, name="plain"))
    assert (await plain.post("/invocations", DETAILS)).json()["details"]["finish_reason"] == "eos_token"
    assert (await plain.post("/invocations", {"prompt": "x"})).json()["error"] == "`inputs` is required"
    disabled = model_dir({"serving.properties": "option.rolling_batch=disable\n"}, name="disabled")
    dynamic = await serve(disabled, plugins=[AutoPlugin()])
    assert isinstance((await dynamic.post("/invocations", INPUTS)).json(), list)


async def test_streams_that_a_function_for_vllms_responses_changes_are_events(
    serve: Serve, model_dir: ModelDirectory
) -> None:
    server = await serve(model_dir({"serving.properties": ASYNC, **MODELS["engine_object"]}))
    chat = {"messages": [{"role": "user", "content": "What is it?"}], "max_tokens": 1}
    texts = []
    for body in (INPUTS | {"parameters": {"max_new_tokens": 1}}, {"prompt": "What?", "max_tokens": 1}, chat):
        answer = await server.post("/invocations", body | STREAM)
        assert answer.content_type == "text/event-stream"
        *parts, last = answer.body.split(b"\n\n")[:-1]
        assert last == b"data: [DONE]"
        events = [orjson.loads(part.removeprefix(b"data: ")) for part in parts]
        assert all(event["checked"] for event in events)
        choices = [choice for event in events for choice in event["choices"]]
        texts.append("".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices))
    assert texts == ["DEEP", "DEEP", "DEEP"]


async def test_a_function_for_response_data_changes_lmis_schema(serve: Serve, model_dir: ModelDirectory) -> None:
    script = "@output_formatter\ndef add(response_data: dict) -> dict:\n    return response_data | {'team': 'a'}\n"
    head = "from djl_python.output_formatter import output_formatter\n\n\n"
    server = await serve(model_dir({"serving.properties": ASYNC, "model.py": head + script}))
    whole = (await server.post("/invocations", INPUTS)).json()
    assert whole == {"generated_text": "Deep Learning is a really cool field.", "team": "a"}
    lines = (await server.post("/invocations", INPUTS | STREAM)).json_lines()
    assert [line["token"]["text"] for line in lines][:2] == ["Deep", " Learning"]
    assert all((line["index"], line["team"]) == (0, "a") for line in lines)


async def test_a_formatter_of_a_plugin_writes_every_answer(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": ASYNC + "option.output_formatter=none\n"}))
    for body in (INPUTS, {"prompt": "What?", "max_tokens": 30}, {"messages": [{"role": "user", "content": "What?"}]}):
        answer = await server.post("/invocations", body)
        assert (answer.status, answer.body) == (200, b"Deep Learning is a really cool field.")


async def test_plain_text_and_sagemakers_runtime(server: RunningServer) -> None:
    text = {"generated_text": "Deep Learning is a really cool field."}
    plain = await server.post("/invocations", data=b"What?", headers={"Content-Type": "text/plain"})
    assert plain.json() == text
    assert (await server.post("/endpoints/any/invocations", INPUTS)).json() == text


def test_check_says_which_schema_and_why(model_dir: ModelDirectory) -> None:
    ignored = "option.tgi_compat=true\noption.output_formatter=sse\noption.enable_streaming=true\n"
    directory = model_dir({"serving.properties": SCRIPTED + ENTRY_POINT + ignored})
    told = lmi("check", directory).stdout
    reason = ENTRY_POINT.strip()
    assert f"schema on /invocations and /predictions: used in LMI's asynchronous mode ({reason})" in told
    assert "output formatter: async_json; async_jsonlines for streams" in told
    for key in ignored.split():
        assert f"warning: {key} has no effect with {reason}, whose schema has only one form: remove one of them" in told


@pytest.mark.parametrize(
    ("properties", "schema"),
    [
        ("", "LMI's (v0.28, the default)"),
        ("option.tgi_compat=true\n", "LMI's with TGI's names (option.tgi_compat=true)"),
    ],
)
def test_check_says_which_schema_others_have(model_dir: ModelDirectory, properties: str, schema: str) -> None:
    told = lmi("check", model_dir({"serving.properties": SCRIPTED + properties})).stdout
    assert f"schema on /invocations and /predictions: {schema}" in told


def test_the_environment_chooses_it(model_dir: ModelDirectory) -> None:
    told = lmi("check", model_dir({"serving.properties": SCRIPTED}), OPTION_ASYNC_MODE="true").stdout
    assert "LMI's asynchronous mode (option.async_mode=true)" in told
