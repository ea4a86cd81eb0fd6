"""Requests with `option.tgi_compat`, and TGI's parameters on LMI's routes without it."""

from typing import Any

import pytest

from lmi_core.generation.parameters import ExtendedParameters
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

COMPATIBLE = "option.tgi_compat=true\n"
ADAPTER = """\
from djl_python.output_formatter import output_formatter


@output_formatter
def f(response_data: dict) -> dict:
    return {"adapter": NAME} | response_data
"""
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + COMPATIBLE}))


@pytest.fixture
async def plain(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}, "plain"))


async def parameters(server: RunningServer, path: str, given: dict[str, Any]) -> ExtendedParameters:
    """Return the parameters that the backend received."""
    answer = await server.post(path, {"inputs": "Hey", "parameters": given})
    assert (answer.status, "X-Lmi-Ignored-Parameters" in answer.headers) == (200, False), answer.body
    found = server.scripted.history[-1].parameters
    assert isinstance(found, ExtendedParameters)
    return found


@pytest.mark.parametrize(("given", "has_details"), [({}, True), ({"details": None}, True), ({"details": False}, False)])
async def test_whole_answers_have_details(server: RunningServer, given: dict[str, Any], has_details: bool) -> None:
    (answer,) = (await server.post("/invocations", {"inputs": "Hey", "parameters": given})).json()
    assert ("details" in answer) == has_details


@pytest.mark.parametrize("path", ["/invocations", "/", "/generate"])
@pytest.mark.parametrize("others", [{}, {"do_sample": False}])
@pytest.mark.parametrize(
    ("given", "samples"),
    [
        ({}, False),
        ({"temperature": 0.7}, True),
        ({"top_k": 5}, True),
        ({"top_p": 0.9}, True),
        ({"typical_p": 0.9}, True),
        ({"temperature": 1.0, "top_k": 0, "top_p": 1.0, "typical_p": 1.0}, False),
        ({"temperature": 1, "top_k": -1}, False),
        ({"repetition_penalty": 1.2, "seed": 3}, False),
        ({"temperature": 0.7, "num_beams": 2}, False),
    ],
)
async def test_sampling_by_its_parameters_alone(
    server: RunningServer, path: str, given: dict[str, Any], others: dict[str, bool], samples: bool
) -> None:
    assert (await parameters(server, path, given | others)).do_sample is samples


async def test_without_tgi_compat_only_do_sample_samples(plain: RunningServer) -> None:
    assert not (await parameters(plain, "/invocations", {"temperature": 0.7})).do_sample
    assert (await parameters(plain, "/invocations", {"do_sample": True})).do_sample


@pytest.mark.parametrize(
    ("grammar", "name", "value"),
    [
        ({"type": "regex", "value": "a+"}, "guided_regex", "a+"),
        ({"type": "json", "value": SCHEMA}, "guided_json", SCHEMA),
        ({"type": "json", "value": '{"type": "object"}'}, "guided_json", {"type": "object"}),
        ({"type": "json_object", "value": SCHEMA}, "guided_json", SCHEMA),
        ({"type": "json_schema", "value": {"name": "a", "schema": SCHEMA}}, "guided_json", SCHEMA),
    ],
)
async def test_grammar(
    server: RunningServer, plain: RunningServer, grammar: dict[str, Any], name: str, value: object
) -> None:
    for each, path in ((server, "/invocations"), (plain, "/invocations"), (server, "/generate")):
        assert getattr(await parameters(each, path, {"grammar": grammar}), name) == value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"grammar": "a+"}, "`grammar` must be an object. Given: 'a+'"),
        ({"grammar": {"type": "regex"}}, "`grammar.value` is required"),
        ({"grammar": {"type": "yaml", "value": "a"}}, "`grammar.type` must be "),
        ({"grammar": {"type": "regex", "value": {}}}, "`grammar.value` must be a regular expression as a string"),
        (
            {"grammar": {"type": "json", "value": "{"}},
            "`grammar.value` must be a JSON schema, as an object or as JSON text",
        ),
        (
            {"grammar": {"type": "json", "value": "{}"}, "guided_regex": "a"},
            "`grammar` and `guided_regex` cannot be used together: both constrain the output",
        ),
    ],
)
@pytest.mark.parametrize("path", ["/invocations", "/generate"])
async def test_wrong_grammar(server: RunningServer, path: str, given: dict[str, Any], message: str) -> None:
    answer = await server.post(path, {"inputs": "Hey", "parameters": given})
    assert answer.status == (424 if path == "/invocations" else 422)
    assert answer.json()["error"].replace("`parameters.", "`").startswith(message)


async def test_parameters_of_lmi_on_tgi_s_routes(plain: RunningServer) -> None:
    found = await parameters(plain, "/generate", {"min_p": 0.5, "guided_choice": ["a"], "stop_sequences": ["b"]})
    assert (found.min_p, found.guided_choice, found.stop_sequences) == (0.5, ["a"], ["b"])


async def test_watermark(server: RunningServer, plain: RunningServer) -> None:
    body = {"inputs": "Hey", "parameters": {"watermark": True}}
    for each, path in ((server, "/invocations"), (plain, "/invocations"), (plain, "/generate")):
        answer = await each.post(path, body)
        assert (answer.status, answer.headers["X-Lmi-Ignored-Parameters"]) == (200, "watermark")


@pytest.fixture
async def adapters(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    names = {"model.py": "none", "adapters/french/model.py": "french", "adapters/german/model.py": "german"}
    scripts = {path: ADAPTER.replace("NAME", repr(name)) for path, name in names.items()}
    return await serve(model_dir({"serving.properties": SCRIPTED} | scripts))


@pytest.mark.parametrize("path", ["/invocations", "/endpoints/mine/invocations", "/", "/generate", "/generate_stream"])
@pytest.mark.parametrize(
    ("adapter_id", "fields", "adapter"),
    [
        ("french", {}, "french"),
        ("german", {"adapters": "german"}, "german"),
        ("german", {"adapters": ["german"]}, "german"),
        (None, {}, "none"),
        ("", {}, "none"),
        (None, {"adapters": "french"}, "french"),
    ],
)
async def test_adapter_id(
    adapters: RunningServer, path: str, adapter_id: str | None, fields: dict[str, Any], adapter: str
) -> None:
    answer = await adapters.post(path, {"inputs": "Hey", "parameters": {"adapter_id": adapter_id}, **fields})
    assert answer.status == 200, answer.body
    found = answer.events(b"data: ") if path == "/generate_stream" else answer.json()
    assert (found[0] if isinstance(found, list) else found)["adapter"] == adapter


@pytest.mark.parametrize("path", ["/invocations", "/generate"])
async def test_adapter_id_in_escapes(adapters: RunningServer, path: str) -> None:
    body = rb'{"inputs": "Hey", "parameters": {"adapter\u005fid": "french"}}'
    answer = await adapters.post(path, data=body, headers={"Content-Type": "application/json"})
    found = answer.json()
    assert (found[0] if isinstance(found, list) else found)["adapter"] == "french", answer.body


@pytest.mark.parametrize("path", ["/invocations", "/generate"])
@pytest.mark.parametrize(
    ("adapter_id", "fields", "message"),
    [
        ("frensh", {}, "there is no adapter `frensh`. Did you mean `french`? Known: french, german"),
        (5, {}, "`parameters.adapter_id` must be the name of an adapter. Given: 5"),
        (
            "french",
            {"adapters": "german"},
            "`adapters` and `parameters.adapter_id` name different adapters: 'german' and 'french'. Name one",
        ),
    ],
)
async def test_wrong_adapter_id(
    adapters: RunningServer, path: str, adapter_id: object, fields: dict[str, Any], message: str
) -> None:
    answer = await adapters.post(path, {"inputs": "Hey", "parameters": {"adapter_id": adapter_id}, **fields})
    assert answer.status >= 400
    assert answer.json()["error"] == message


async def test_a_body_that_is_nested_too_deeply_to_be_rewritten(server: RunningServer) -> None:
    nested = b'{"a":' * 300 + b"1" + b"}" * 300
    body = b'{"inputs": "Hey", "parameters": {"adapter_id": "a", "zzz": %b}}' % nested
    answer = await server.post("/invocations", data=body)
    assert answer.status == 424
    assert answer.json()["error"].startswith("the body cannot be written as JSON: ")


HANDLE = """\
from djl_python import Input, Output


def handle(inputs: Input) -> Output:
    return Output().add_as_json({} if inputs.is_empty() else inputs.get_as_json())
"""


async def test_a_handle_function_gets_the_adapter_id_as_it_came(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"model.py": HANDLE}))
    body = {"inputs": "Hey", "parameters": {"adapter_id": "french"}}
    assert (await server.post("/invocations", body)).json() == body
