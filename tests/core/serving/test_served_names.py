"""`option.served_model_name`: further names of a model, on all routes."""

from typing import Any

import pytest

from lmi_core.errors import ConfigurationError
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.openai.chats import MESSAGES, serve_with

CHAT = {"messages": MESSAGES}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve_with(serve, model_dir, "option.served_model_name=org/llama, llama\n")


async def test_list_of_models(server: RunningServer) -> None:
    data = (await server.get("/v1/models")).json()["data"]
    assert [(entry["id"], entry["root"]) for entry in data] == [
        ("org/llama", "model"),
        ("llama", "model"),
        ("model", "model"),
    ]
    assert (await server.get("/v1/models/llama")).json()["id"] == "llama"
    assert (await server.get("/v1/models/mistral")).status == 404


NAMES = [
    ("llama", "llama"),
    ("model", "model"),
    *((unnamed, "org/llama") for unnamed in (None, "", "dummy", "tgi", "http://host/v1")),
]


@pytest.mark.parametrize(("asked", "named"), NAMES)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "Hi"})])
async def test_the_answer_has_the_name_that_was_asked_with(
    server: RunningServer, path: str, body: dict[str, Any], stream: bool, asked: str | None, named: str
) -> None:
    answer = await server.post(path, body | {"model": asked, "stream": stream})
    assert answer.status == 200
    assert f'"model":"{named}"'.encode() in answer.body


async def test_unknown_name(server: RunningServer) -> None:
    answer = await server.post("/v1/chat/completions", CHAT | {"model": "lama"})
    message = "model `lama` is not served. Did you mean `llama`? Served: org/llama, llama, model"
    assert (answer.status, answer.json()["error"]["message"]) == (404, message)


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        ("/predictions/llama", {}, {"inputs": "Hi"}),
        ("/invocations", {}, {"inputs": "Hi", "model": "llama"}),
        ("/invocations", {"X-Amzn-SageMaker-Target-Model": "llama"}, {"inputs": "Hi"}),
        ("/v2/models/llama/generate", {}, {"text_input": "Hi"}),
        ("/v1/chat/completions", {}, CHAT | {"model": "llama"}),
    ],
)
async def test_one_of_several_models(
    serve: Serve, model_dir: ModelDirectory, path: str, headers: dict[str, str], body: dict[str, Any]
) -> None:
    one = model_dir({"serving.properties": SCRIPTED + 'option.served_model_name=["llama"]\n'}, "store/one")
    model_dir({"serving.properties": SCRIPTED}, "store/two")
    server = await serve(one.parent)
    assert (await server.post(path, body, headers=headers)).status == 200
    assert len(server.dispatcher.models["one"].backend.history) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("names", ["two", "other"])
async def test_one_name_for_two_models(serve: Serve, model_dir: ModelDirectory, names: str) -> None:
    one = model_dir({"serving.properties": f"{SCRIPTED}option.served_model_name={names}\n"}, "store/one")
    model_dir({"serving.properties": f"{SCRIPTED}option.served_model_name=other\n"}, "store/two")
    with pytest.raises(ConfigurationError, match=f"models one and two would both be served as `{names}`"):
        await serve(one.parent)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[1]", "must be a JSON array of strings"),
        ('["a"', "must be a JSON array: "),
        ('[""]', "must be a JSON array of strings that are not empty"),
    ],
)
async def test_wrong_names(serve: Serve, model_dir: ModelDirectory, value: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option.served_model_name {message}"):
        await serve_with(serve, model_dir, f"option.served_model_name={value}\n")
