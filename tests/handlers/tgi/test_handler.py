"""The native routes of Text Generation Inference."""

import asyncio
from base64 import b64encode
from importlib.metadata import version
from typing import Any

import pytest

from lmi_core.generation.parameters import MAX_STOPS, ExtendedParameters
from lmi_plugins.backends.scripted import Script
from tests import golden
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.chat.test_images import SeeingPlugin

TEXT = "Deep Learning is a really cool field."
WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
PROMPT = "What is Deep Learning?"
GENERATING = ["/", "/generate", "/generate_stream"]
IGNORED_HEADER = "X-Lmi-Ignored-Parameters"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + "job_queue_size=1\n"}))


async def test_generate_answers_an_object(server: RunningServer) -> None:
    answer = await server.post("/generate", {"inputs": PROMPT})
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.json() == {"generated_text": TEXT}


async def test_root_answers_an_array(server: RunningServer) -> None:
    assert (await server.post("/", {"inputs": PROMPT})).json() == [{"generated_text": TEXT}]


@pytest.mark.parametrize(("path", "stream"), [("/", True), ("/generate_stream", None), ("/generate_stream", True)])
async def test_stream(server: RunningServer, path: str, stream: bool | None) -> None:
    answer = await server.post(path, {"inputs": PROMPT, "stream": stream})
    assert (answer.status, answer.content_type) == (200, "text/event-stream")
    events = answer.events(b"data: ")
    assert [event["token"]["text"] for event in events] == WORDS
    assert [event["index"] for event in events] == [1, 2, 3, 4, 5, 6, 7]
    assert [event["generated_text"] for event in events] == [None] * 6 + [TEXT]
    assert all(event["details"] is None for event in events)
    assert set(events[0]["token"]) == {"id", "text", "logprob", "special"}


async def test_stream_that_is_aborted_ends_with_an_event_without_a_token(server: RunningServer) -> None:
    server.scripted.enqueue(script := Script("One two", hold=True))
    headers = {"x-request-id": "one"}
    asking = asyncio.create_task(server.post("/generate_stream", {"inputs": PROMPT}, headers=headers))
    await script.started.wait()
    server.model.running.abort("one")
    *_, event = (await asking).events(b"data: ")
    assert (event["index"], event["token"]["text"], event["generated_text"]) == (3, "", "One two")


async def test_details(server: RunningServer) -> None:
    parameters = {"details": False, "decoder_input_details": True, "max_new_tokens": 2}
    answer = (await server.post("/generate", {"inputs": PROMPT, "parameters": parameters})).json()
    details = answer["details"]
    assert [token["text"] for token in details.pop("tokens")] == WORDS[:2]
    prefill = details.pop("prefill")
    assert "".join(token["text"] for token in prefill) == PROMPT
    assert all(set(token) == {"id", "text", "logprob"} for token in prefill)
    assert details == {"finish_reason": "length", "generated_tokens": 2, "seed": None}


async def test_details_of_a_stream(server: RunningServer) -> None:
    parameters = {"details": True, "stop": [" is"]}
    answer = await server.post("/generate_stream", {"inputs": PROMPT, "parameters": parameters})
    *_, last = answer.events(b"data: ")
    expected = {"finish_reason": "stop_sequence", "generated_tokens": 3, "seed": None, "input_length": 4}
    assert (last["generated_text"], last["details"]) == ("Deep Learning", expected)


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize(
    ("given", "seed"),
    [
        ({"do_sample": True, "seed": 7}, 7),
        ({"temperature": 0.5, "seed": 0}, 0),
        ({"seed": 7}, None),
        ({"do_sample": True, "temperature": 0, "seed": 7}, None),
        ({}, None),
    ],
)
async def test_seed(server: RunningServer, path: str, given: dict[str, Any], seed: int | None) -> None:
    assert await reported_seed(server, path, given) == seed
    assert server.scripted.history[-1].parameters.seed == given.get("seed")


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("given", [{"do_sample": True}, {"top_k": 5}, {"top_p": 0.9, "seed": -1}])
async def test_drawn_seed(server: RunningServer, path: str, given: dict[str, Any]) -> None:
    """A client that samples without a seed gets the one with which the answer can be reproduced, as with TGI."""
    seeds = [await reported_seed(server, path, given) for _ in range(3)]
    assert [request.parameters.seed for request in server.scripted.history] == seeds
    assert len(set(seeds)) == 3
    assert all(isinstance(seed, int) and 0 <= seed < 2**53 for seed in seeds)


async def test_no_seed_is_drawn_where_none_is_told(server: RunningServer) -> None:
    await server.post("/generate", {"inputs": PROMPT, "parameters": {"do_sample": True}})
    assert server.scripted.history[-1].parameters.seed is None


async def reported_seed(server: RunningServer, path: str, parameters: dict[str, Any]) -> Any:
    answer = await server.post(path, {"inputs": PROMPT, "parameters": {"details": True, **parameters}})
    assert answer.status == 200, answer.body
    if path == "/generate_stream":
        return answer.events(b"data: ")[-1]["details"]["seed"]
    found = answer.json()
    return (found[0] if isinstance(found, list) else found)["details"]["seed"]


async def test_best_of(server: RunningServer) -> None:
    parameters = {"details": True, "best_of": 2, "max_new_tokens": 1, "do_sample": True}
    details = (await server.post("/generate", {"inputs": PROMPT, "parameters": parameters})).json()["details"]
    (other,) = details["best_of_sequences"]
    assert details["tokens"][0]["logprob"] > other["tokens"][0]["logprob"]
    assert set(other) == {"generated_text", "finish_reason", "generated_tokens", "seed", "prefill", "tokens"}
    refused = await server.post("/generate_stream", {"inputs": PROMPT, "parameters": parameters})
    assert (refused.status, refused.json()["error_type"]) == (422, "validation")


@pytest.mark.parametrize("path", ["/generate", "/generate_stream"])
async def test_top_tokens(server: RunningServer, path: str) -> None:
    parameters = {"details": True, "top_n_tokens": 2, "max_new_tokens": 1}
    answer = await server.post(path, {"inputs": PROMPT, "parameters": parameters})
    if path == "/generate":
        (top,) = answer.json()["details"]["top_tokens"]
    else:
        (top,) = [event["top_tokens"] for event in answer.events(b"data: ")]
    assert [token["text"] for token in top] == WORDS[:2]


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({}, "max_new_tokens", 2044),  # after a prompt of 4 tokens
        ({}, "do_sample", False),
        ({"temperature": 0.5}, "do_sample", True),
        ({"top_k": 5}, "do_sample", True),
        ({"stop": ["a"]}, "stop_sequences", ["a"]),
        ({"typical_p": 0.9}, "typical_p", 0.9),
        ({"truncate": 3}, "truncate", 3),
        ({"grammar": {"type": "regex", "value": "a+"}}, "guided_regex", "a+"),
        ({"grammar": {"type": "json", "value": {"type": "object"}}}, "guided_json", {"type": "object"}),
        (
            {"grammar": {"type": "json_schema", "value": {"name": "a", "schema": {"type": "array"}}}},
            "guided_json",
            {"type": "array"},
        ),
        ({"watermark": False}, "seed", None),
    ],
)
async def test_parameters(server: RunningServer, given: dict[str, Any], name: str, value: object) -> None:
    answer = await server.post("/generate", {"inputs": PROMPT, "parameters": given})
    assert answer.status == 200, answer.body
    parameters = server.scripted.history[-1].parameters
    assert isinstance(parameters, ExtendedParameters)
    assert getattr(parameters, name) == value


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "`inputs` is required"),
        ({"inputs": ""}, "`inputs` must have at least 1 character. Given: ''"),
        ({"inputs": "a", "parameters": {"top_p": 2}}, "`top_p` must be less than or equal to 1. Given: 2"),
        ({"inputs": "a", "parameters": {"stop": [""]}}, "`stop.0` must have at least 1 character. Given: ''"),
        (
            {"inputs": "a", "parameters": {"watermark": "x"}},
            "`parameters.watermark` must be a valid boolean. Given: 'x'",
        ),
        (
            {"inputs": "a", "parameters": {"grammar": {"type": "json", "value": "[]"}}},
            "`parameters.grammar.value` must be a JSON schema, as an object or as JSON text",
        ),
        (
            {"inputs": "a", "parameters": {"grammar": {"type": "regex", "value": {}}}},
            "`parameters.grammar.value` must be a regular expression as a string",
        ),
        ({"inputs": "w " * 2048}, "`inputs` must be at most 2047 tokens long. Given: 2049"),
        (
            {"inputs": "a", "parameters": {"max_new_tokens": 2048}},
            "`max_new_tokens` must be at most 2047 after a prompt of 1 tokens",
        ),
    ],
)
@pytest.mark.parametrize("path", GENERATING)
async def test_validation_error(server: RunningServer, path: str, body: dict[str, Any], message: str) -> None:
    answer = await server.post(path, body)
    assert (answer.status, answer.content_type) == (422, "application/json")
    assert answer.json()["error"].startswith(message)
    assert answer.json()["error_type"] == "validation"


@pytest.mark.parametrize("value", [True, False, None])
@pytest.mark.parametrize("name", ["use_cache", "wait_for_model", "use_gpu"])
async def test_options_change_nothing(server: RunningServer, name: str, value: bool | None) -> None:
    plain = await server.post("/", {"inputs": PROMPT})
    answer = await server.post("/", {"inputs": PROMPT, "options": {name: value}})
    assert (answer.status, answer.body, IGNORED_HEADER in answer.headers) == (200, plain.body, False)
    asked, given = server.scripted.history[-2:]
    assert asked.parameters == given.parameters


@pytest.mark.parametrize("options", [None, {}])
async def test_options_may_be_empty(serve: Serve, model_dir: ModelDirectory, options: dict[str, Any] | None) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.strict_parameters=true\n"}))
    answer = await server.post("/", {"inputs": PROMPT, "options": options})
    assert (answer.status, answer.json()) == (200, [{"generated_text": TEXT}])


@pytest.mark.parametrize("stream", [False, True])
async def test_unknown_options_are_listed(server: RunningServer, stream: bool) -> None:
    options = {"use_cache": False, "use_cash": 1, "zzz": None}
    body = {"inputs": PROMPT, "stream": stream, "parameters": {"temprature": 1}, "options": options, "strem": True}
    answer = await server.post("/", body)
    assert (answer.status, answer.headers[IGNORED_HEADER]) == (200, "strem, use_cash, temprature")


async def test_unknown_options_are_refused_where_strict(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.strict_parameters=true\n"}))
    answer = await server.post("/", {"inputs": PROMPT, "options": {"use_gpu": True}})
    assert (answer.status, answer.json()) == (200, [{"generated_text": TEXT}])
    answer = await server.post("/", {"inputs": PROMPT, "options": {"use_gpu": True, "zzz": 1}})
    message = "`options.zzz` is not a field of this request."
    assert (answer.status, answer.json()) == (422, {"error": message, "error_type": "validation"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (3, "`options` must be an object"),
        ({"use_cache": "yes"}, "`options.use_cache` must be a valid boolean. Given: 'yes'"),
        ({"wait_for_model": 1}, "`options.wait_for_model` must be a valid boolean. Given: 1"),
        ({"use_gpu": []}, "`options.use_gpu` must be a valid boolean. Given: []"),
    ],
)
async def test_options_of_a_wrong_type(server: RunningServer, options: object, message: str) -> None:
    answer = await server.post("/", {"inputs": PROMPT, "options": options})
    assert (answer.status, answer.json()["error_type"]) == (422, "validation")
    assert answer.json()["error"].startswith(message)


@pytest.mark.parametrize(("path", "stream"), [("/generate", True), ("/generate_stream", False)])
async def test_stream_on_a_route_that_has_another_form(server: RunningServer, path: str, stream: bool) -> None:
    answer = await server.post(path, {"inputs": PROMPT, "stream": stream})
    message = f"`stream` must be {str(not stream).lower()} on {path}. Given: {stream}"
    assert (answer.status, answer.json()) == (422, {"error": message, "error_type": "validation"})


@pytest.mark.parametrize("path", GENERATING)
async def test_generation_error(server: RunningServer, path: str) -> None:
    server.scripted.enqueue(Script("", error="the engine fell over"))
    answer = await server.post(path, {"inputs": PROMPT})
    assert (answer.status, answer.json()) == (424, {"error": "the engine fell over", "error_type": "generation"})


async def test_error_within_a_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two", error="the engine fell over"))
    answer = await server.post("/generate_stream", {"inputs": PROMPT})
    assert answer.events(b"data: ")[2:] == [{"error": "the engine fell over", "error_type": "generation"}]


async def test_incomplete_generation(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.predict_timeout=1\n"}))
    server.scripted.enqueue(Script("one", hold=True))
    answer = await server.post("/generate", {"inputs": PROMPT})
    assert (answer.status, answer.json()["error_type"]) == (500, "incomplete_generation")


async def test_overloaded(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = "job_queue_size=1\noption.max_rolling_batch_size=1\n"
    server = await serve(model_dir({"serving.properties": SCRIPTED + properties}))
    scripts = [Script("one", hold=True), Script("one", hold=True)]
    server.scripted.enqueue(*scripts)
    waiting = [asyncio.create_task(server.post("/generate", {"inputs": PROMPT})) for _ in scripts]
    await asyncio.gather(*(script.started.wait() for script in scripts))
    answer = await server.post("/generate", {"inputs": PROMPT})
    assert (answer.status, answer.json()["error_type"]) == (429, "overloaded")
    for task in waiting:
        task.cancel()
    await asyncio.gather(*(script.closed.wait() for script in scripts))


async def test_info(server: RunningServer) -> None:
    info = (await server.get("/info")).json()
    places = server.model.admission.maximum
    assert info == {
        "model_id": "model",
        "model_sha": None,
        "model_pipeline_tag": "text-generation",
        "max_concurrent_requests": places,
        "max_best_of": places,
        "max_stop_sequences": MAX_STOPS,
        "max_input_tokens": 2047,
        "max_total_tokens": 2048,
        "validation_workers": 1,
        "max_client_batch_size": places,
        "router": "lmi-handlers",
        "version": version("lmi-handlers"),
        "sha": None,
        "docker_label": None,
    }


async def test_health(server: RunningServer) -> None:
    answer = await server.get("/health")
    assert (answer.status, answer.body) == (200, b"")
    server.model.ready = False
    answer = await server.get("/health")
    assert (answer.status, answer.json()) == (503, {"error": "model model is loading", "error_type": "healthcheck"})
    assert (await server.get("/info")).status == 503


def dialect(prompt: str, given: dict[str, Any], form: str) -> tuple[str, object]:
    names = {"stop_sequences": "stop"}
    parameters = {"details": True} | {names.get(name, name): value for name, value in given.items()}
    return ("/generate_stream" if form == "stream" else "/generate"), {"inputs": prompt, "parameters": parameters}


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("form", golden.FORMS)
async def test_golden_transcript(server: RunningServer, form: str, case: str) -> None:
    await golden.replay(server, "tgi", dialect, form, case)


async def test_images(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir(
        {"serving.properties": "option.rolling_batch=seeing\noption.max_images=2\noption.tgi_compat=true\n"}
    )
    server = await serve(directory, plugins=[SeeingPlugin()])
    one, two = (f"![](data:image/png;base64,{b64encode(data).decode()})" for data in (b"one", b"two"))
    for path in ("/generate", "/generate_stream", "/", "/invocations"):
        answer = await server.post(path, {"inputs": f"{one}What is this? {two}\n\n"})
        assert answer.status == 200, answer.body
        latest = server.scripted.history[-1]
        assert latest.prompt == "(image 1)What is this? (image 2)\n\n"
        assert latest.image_prompt is not None
        assert latest.image_prompt.content == [b"one", b"two"]
    await server.post("/generate", {"inputs": f"![]( and {one}?"})
    assert server.scripted.history[-1].prompt == "![]( and (image 1)?"
    for inputs, reason in (
        ("![](no image)", "`inputs` must be an http or https URL, or an image in base64"),
        ("![](https://example.com/a.png)", "`inputs` cannot be fetched: option.allowed_media_domains"),
        (one * 3, "`inputs` must contain at most 2 images. Given: 3"),
    ):
        refused = await server.post("/generate", {"inputs": inputs})
        assert (refused.status, refused.json()["error_type"]) == (422, "validation")
        assert reason in refused.json()["error"]
    whole = await server.post("/generate", {"inputs": one, "parameters": {"return_full_text": True}})
    assert whole.json()["error"] == "`parameters.return_full_text` cannot be used with images in `inputs`"


async def test_image_for_a_model_of_text(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    assert (await server.post("/generate", {"inputs": "![](a.png)What?"})).status == 200
    assert server.scripted.history[0].prompt == "![](a.png)What?"
