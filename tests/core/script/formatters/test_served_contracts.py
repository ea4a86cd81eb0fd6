"""Output formatters of every contract, in model.py files as their authors wrote them, served over a real socket."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.request import GenerationRequest
from lmi_core.handler import Answer, Call, Generation, Handler, Route, ServedModel
from lmi_core.hookspecs import hookimpl
from lmi_core.plugins.registry import Lazy
from lmi_plugins.backends import registration
from lmi_plugins.backends.scripted import Script
from lmi_plugins.formatters.json import JsonFormatter
from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.core.script.formatters.served_scripts import BODY, CHAT, SCRIPTS, STREAM, TEXT, WORDS, ServeScript, both


async def test_request_output(serve_script: ServeScript) -> None:
    server = await serve_script("request_output")
    whole, stream = await both(server, BODY | {"parameters": {"max_new_tokens": 20}})
    assert stream.content_type == "application/jsonlines"
    *lines, last = stream.json_lines()
    assert [line["tok"] for line in [*lines, last]] == WORDS
    assert [line["first"] for line in [*lines, last]] == [True] + 6 * [False]
    assert last == {
        "tok": " field.",
        "first": False,
        "reason": "eos_token",
        "n": 7,
        "prompt": "What is it?",
        "asked_for": 20,
    }
    assert whole.body == stream.body


async def test_request_output_of_all_unread_tokens(serve_script: ServeScript) -> None:
    whole, stream = await both(await serve_script("numbered_tokens"))
    assert stream.body.startswith(b"0:Deep;1:Learning;2:is;")
    assert stream.body.endswith(b'6:field.;{"text": "Deep Learning is a really cool field.", "score": -1.75}')
    assert whole.body == stream.body


async def test_best_of_several_sequences_is_formatted_at_the_end(serve_script: ServeScript) -> None:
    server = await serve_script("numbered_tokens")
    answer = await server.post("/invocations", BODY | {"parameters": {"n": 2, "max_new_tokens": 2}})
    assert answer.body == b'0:Deep;1:Learning;{"text": "Deep Learning", "score": -0.5}'


async def test_legacy(serve_script: ServeScript) -> None:
    server = await serve_script("legacy")
    whole, stream = await both(server, BODY | {"parameters": {"details": True}})
    assert whole.json() == {"outputs": WORDS, "generated_text": TEXT, "reason": "eos_token"}
    assert stream.body == whole.body
    without_details = await server.post("/invocations", BODY)
    assert without_details.json() == {"outputs": WORDS, "generated_text": TEXT}


async def test_an_error_before_the_function_is_called_has_the_type_of_its_own_form(
    serve: Serve, model_dir: ModelDirectory
) -> None:
    rows = "@output_formatter(content_type='text/csv')\ndef rows(output):\n    return output.delta + '\\n'\n"
    script = f"from lmi import output_formatter\n\n{rows}"
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}))
    assert (await server.post("/invocations", BODY)).content_type == "text/csv"
    for body in (BODY, STREAM):
        refused = await server.post("/invocations", body | {"parameters": {"max_new_tokens": -1}})
        kind = "application/jsonlines" if "stream" in body else "application/json"
        assert (refused.status, refused.content_type) == (424, kind)
        assert refused.json()["error"].startswith("`max_new_tokens` must be ")


async def test_response_data(serve_script: ServeScript) -> None:
    whole, stream = await both(await serve_script("response_data"))
    assert whole.json() == {"generated_text": TEXT.upper(), "served_by": "team-a"}
    *lines, last = stream.json_lines()
    assert [line["token"]["text"] for line in [*lines, last]] == WORDS
    assert all(line["served_by"] == "team-a" for line in lines)
    assert (last["generated_text"], last["served_by"]) == (TEXT.upper(), "team-a")


async def test_response_data_as_events(serve_script: ServeScript) -> None:
    server = await serve_script("response_data", "option.tgi_compat=true\n")
    whole, stream = await both(server, BODY | {"parameters": {"details": False}})
    assert whole.json() == [{"generated_text": TEXT.upper(), "served_by": "team-a"}]
    events = stream.events(b"data: ")
    assert [event["token"]["text"] for event in events] == WORDS
    assert {event["served_by"] for event in events} == {"team-a"}


async def test_engine_object(serve_script: ServeScript) -> None:
    whole, stream = await both(await serve_script("engine_object"))
    assert whole.json() == {"generated_text": TEXT.upper(), "checked": True}
    lines = stream.json_lines()
    assert [line["token"]["text"] for line in lines] == [word.upper() for word in WORDS]
    assert all(line["checked"] and "choices" not in line for line in lines)
    assert lines[-1]["generated_text"] == TEXT.upper()


async def test_engine_object_after_the_prompt(serve_script: ServeScript) -> None:
    server = await serve_script("engine_object")
    answer = await server.post("/invocations", STREAM | {"parameters": {"return_full_text": True}})
    assert answer.json_lines()[-1]["generated_text"] == "What is it?" + TEXT.upper()


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/generate", BODY, {"generated_text": TEXT.upper()}),
        ("/", BODY, [{"generated_text": TEXT.upper()}]),
        (
            "/v2/models/model/generate",
            {"text_input": "Why?", "exclude_input_in_output": True},
            {"text_output": TEXT.upper()},
        ),
        (
            "/v2/models/model/generate",
            {"text_input": "Why?", "exclude_input_in_output": True, "parameters": {"n": 2, "max_tokens": 1}},
            {"text_output": ["DEEP", "Deep"]},
        ),
    ],
)
async def test_engine_object_of_other_dialects(
    serve_script: ServeScript, path: str, body: dict[str, Any], said: dict[str, Any] | list[dict[str, Any]]
) -> None:
    answer = (await (await serve_script("engine_object")).post(path, body)).json()
    (answer, said) = (answer[0], said[0]) if isinstance(said, list) else (answer, said)
    assert answer["checked"] is True
    assert {name: answer[name] for name in said} == said
    assert "choices" not in answer


async def test_engine_object_of_tgis_streams(serve_script: ServeScript) -> None:
    server = await serve_script("engine_object", "option.tgi_compat=true\n")
    for path, body in (("/generate_stream", BODY), ("/invocations", STREAM)):
        events = (await server.post(path, body)).events(b"data:")
        assert [event["token"]["text"] for event in events] == [word.upper() for word in WORDS]
        assert events[-1]["generated_text"] == TEXT.upper()


async def test_engine_object_of_anthropics_messages(serve_script: ServeScript) -> None:
    server = await serve_script("engine_object")
    body = CHAT | {"max_tokens": 64}
    whole = (await server.post("/v1/messages", body)).json()
    assert whole["content"] == [{"type": "text", "text": TEXT.upper()}]
    assert (whole["checked"], "choices" in whole) == (True, False)
    stream = (await server.post("/v1/messages", body | {"stream": True})).body
    events = [orjson.loads(event.split(b"data: ")[1]) for event in stream.split(b"\n\n") if event]
    assert "".join(event.get("delta", {}).get("text", "") for event in events) == TEXT.upper()


async def test_engine_object_of_ollamas_answers(serve_script: ServeScript) -> None:
    server = await serve_script("engine_object")
    whole = (await server.post("/api/chat", CHAT | {"stream": False})).json()
    assert (whole["message"]["content"], whole["checked"], "choices" in whole) == (TEXT.upper(), True, False)
    lines = (await server.post("/api/chat", CHAT)).json_lines()
    assert "".join(line["message"]["content"] for line in lines) == TEXT.upper()
    lines = (await server.post("/api/generate", {"prompt": "What is it?"})).json_lines()
    assert "".join(line["response"] for line in lines) == TEXT.upper()


async def test_engine_object_of_a_response(serve_script: ServeScript) -> None:
    server = await serve_script("engine_object")
    whole = (await server.post("/v1/responses", {"input": "What is it?"})).json()
    assert (whole["output"][0]["content"][0]["text"], whole["checked"]) == (TEXT.upper(), True)
    refused = await server.post("/v1/responses", {"input": "What is it?", "stream": True})
    assert refused.status == 400
    assert refused.json()["error"]["message"].startswith("`stream` must be false: the model's output formatter shout ")


async def test_engine_object_of_a_dynamic_batch(serve_script: ServeScript, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Lazy("lmi_plugins.backends.scripted:ScriptedBackend", "scripted", auto_priority=1000)
    monkeypatch.setattr(registration, "BACKENDS", (first,))
    server = await serve_script("engine_object", "option.rolling_batch=disable\n")
    body = {"inputs": ["What is it?"]}
    (whole,) = (await server.post("/invocations", body)).json()
    assert whole == {"generated_text": TEXT.upper(), "checked": True}
    lines = (await server.post("/invocations", body | {"stream": True})).json_lines()
    assert "".join(line["outputs"][0] for line in lines) == TEXT.upper()


async def test_engine_object_of_a_chat(serve_script: ServeScript) -> None:
    server = await serve_script("engine_object")
    whole = await server.post("/v1/chat/completions", CHAT)
    assert whole.json()["choices"][0]["message"]["content"] == TEXT.upper()
    assert whole.json()["checked"] is True
    stream = await server.post("/v1/chat/completions", CHAT | {"stream": True})
    *events, done, end = stream.body.split(b"\n\n")
    assert (done, end) == (b"data: [DONE]", b"")
    chunks = [orjson.loads(event.removeprefix(b"data: ")) for event in events]
    deltas = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
    assert "".join(deltas) == TEXT.upper()
    assert all(chunk["checked"] for chunk in chunks)


async def test_documented_engine_object_names_the_model(serve_script: ServeScript) -> None:
    server = await serve_script("documented_engine_object")
    whole, stream = await both(server)
    answer = {"custom_formatter_applied": True, "generated_text": TEXT, "model": "model"}
    assert whole.json() == answer
    assert [line["generated_text"] for line in stream.json_lines()] == WORDS
    assert {line["model"] for line in stream.json_lines()} == {"model"}
    for route in ("/invocations", "/v1/chat/completions"):
        chat = await server.post(route, CHAT)
        assert chat.json() == answer


ENGINE_ATTRIBUTES = """\
from djl_python.output_formatter import output_formatter


@output_formatter
def f(response):
    choice = response.choices[0]
    response.read = [
        response.id, response.object, response.created > 1e9, response.model, response.usage.completion_tokens,
        response.usage.prompt_tokens, response.usage.total_tokens, choice.index, choice.text, choice.finish_reason,
        choice.logprobs, choice.stop_reason, response.system_fingerprint,
    ]
    return response
"""


async def test_engine_object_has_the_attributes_of_a_completion(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": ENGINE_ATTRIBUTES}))
    answer = await server.post("/invocations", BODY, headers={"x-request-id": "r7"})
    head = ["r7", "text_completion", True, "model", 7, 3, 10]
    assert answer.json() == {
        "generated_text": TEXT,
        "read": [*head, 0, TEXT, "eos_token", None, None, None],
    }


async def test_formatter_of_objects_and_event_strings_gets_objects(serve_script: ServeScript) -> None:
    server = await serve_script("sse_strings")
    whole, stream = await both(server)
    assert whole.json() == {"generated_text": TEXT, "_adapter_name": "base"}
    assert all(line["_adapter_name"] == "base" for line in stream.json_lines())
    chat = await server.post("/v1/chat/completions", CHAT | {"stream": True})
    *events, done, _ = chat.body.split(b"\n\n")
    assert done == b"data: [DONE]"
    assert {orjson.loads(event.removeprefix(b"data: "))["_adapter_name"] for event in events} == {"base"}


REQUEST_IDS = """\
import json

from djl_python.output_formatter import TextGenerationOutput, output_formatter


@output_formatter
def f(request_output: TextGenerationOutput) -> str:
    sequence = request_output.sequences[request_output.best_sequence_index]
    token, _, _ = sequence.get_next_token()
    top = sequence.get_next_top_tokens() or []
    prompt = request_output.prompt_tokens_details
    ids = [each.request_id for each in (token, *top, *prompt)]
    return json.dumps([*ids, request_output.request_id, request_output.input.request_id]) + "\\n"
"""


async def test_tokens_know_their_request(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": REQUEST_IDS}))
    parameters = {"details": True, "decoder_input_details": True, "logprobs": 1, "max_new_tokens": 1}
    body = {"inputs": "What is it?", "parameters": parameters, "stream": True}
    (ids,) = (await server.post("/invocations", body, headers={"x-request-id": "r7"})).json_lines()
    assert set(ids) == {"r7"}
    assert len(ids) > 4


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"prompt": "What is it?"}),
        ("/v2/models/model/generate", {"text_input": "What is it?"}),
        ("/generate", {"inputs": "What is it?"}),
        ("/v1/generate", {"prompt": "What is it?"}),
    ],
)
async def test_every_route(serve_script: ServeScript, route: str, body: dict[str, Any]) -> None:
    answer = await (await serve_script("own")).post(route, body)
    assert answer.content_type == "application/json"
    assert answer.json()["text"] == TEXT[: len(answer.json()["text"])]
    data = await (await serve_script("response_data", model="data")).post(route.replace("model/", "data/"), body)
    assert data.json()["served_by"] == "team-a"


async def test_own_contract(serve_script: ServeScript) -> None:
    whole, stream = await both(await serve_script("own"))
    expected = {"text": TEXT, "why": "eos_token", "tokens": [3, 7], "limit": 30}
    assert (whole.content_type, stream.content_type) == ("application/json", "application/jsonlines")
    assert (whole.json(), stream.json_lines()) == (expected, [expected])
    assert (whole.headers["X-Style"], stream.headers["X-Style"]) == ("report", "report")


async def test_own_contract_writes_errors_within_a_stream(serve: Serve, model_dir: ModelDirectory) -> None:
    script = (
        "from lmi_core.formatter import GenerationOutput, output_formatter\n\n"
        "@output_formatter\n"
        "def f(output: GenerationOutput) -> str:\n"
        "    return f'[failed: {output.error.message}]' if output.error else output.delta.upper()\n"
    )
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}))
    server.scripted.enqueue(Script("one two", error="the engine fell over"))
    answer = await server.post("/invocations", STREAM)
    assert (answer.status, answer.content_type) == (200, "text/plain; charset=utf-8")
    assert answer.body == b"ONE TWO[failed: the engine fell over]"


async def test_request_output_writes_errors_within_a_stream(serve_script: ServeScript) -> None:
    server = await serve_script("request_output")
    server.scripted.enqueue(Script("one", error="the engine fell over"))
    lines = (await server.post("/invocations", STREAM)).json_lines()
    assert [(line["tok"], line.get("reason")) for line in lines] == [("one", None), ("", "error")]


class NestedFormatter(JsonFormatter):
    name = "nested"
    text_path = ("answer", "text")

    def whole(self, output: GenerationOutput) -> dict[str, Any]:
        return {"answer": {"text": output.text}}


class NestedHandler(Handler):
    name = "nested"
    routes = (Route("/nested"),)

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> None:
        return None

    def parse(self, call: Call, model: ServedModel) -> Generation:
        return Generation((GenerationRequest("x", {}),), NestedFormatter())

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        return Answer(500, "text/plain", error.message.encode())


class NestedPlugin:
    @hookimpl
    def lmi_register_handlers(self, register: Callable[[type[Handler]], None]) -> None:
        register(NestedHandler)


async def test_engine_object_of_a_plugins_dialect(serve: Serve, model_dir: ModelDirectory) -> None:
    script = (SCRIPTS / "engine_object" / "model.py").read_text()
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}), plugins=[NestedPlugin()])
    answer = await server.post("/nested", {})
    assert answer.json() == {"answer": {"text": TEXT.upper()}, "checked": True}
