"""Requests for one of several versions of a model, where no other model is served."""

import asyncio
import logging

import orjson
import pytest
from tritonclient.grpc import service_pb2

from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.kserve_grpc.asking import infer_request, stub_of
from tests.handlers.management.asking import ask, register

CHAT = {"messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    """Start a server of one model, whose default version answers `one` and whose version 2 `two`."""
    first, second = (
        model_dir({"serving.properties": f"{SCRIPTED}option.scripted_text={text}\n"}, name)
        for name, text in (("model", "one"), ("second", "two"))
    )
    server = await serve(first, grpc=True)
    assert (await register(server, second, model_name="model", model_version="2")).status == 200
    return server


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/invocations", {"inputs": "Hello"}),
        ("/invocations", CHAT),
        ("/v1/completions", {"prompt": "Hello"}),
        ("/v1/chat/completions", CHAT),
        ("/v1/responses", {"input": "Hello"}),
        ("/v1/messages", CHAT | {"max_tokens": 9}),
        ("/v1/generate", {"prompt": "Hello"}),
        ("/api/generate", {"prompt": "Hello", "stream": False}),
        ("/api/chat", CHAT | {"stream": False}),
    ],
)
async def test_name_and_version_in_a_body(server: RunningServer, path: str, body: dict[str, object]) -> None:
    for name, text in (("model", b'"one"'), ("model:2", b'"two"')):
        answer = await server.post(path, body | {"model": name})
        assert (answer.status, text in answer.body) == (200, True), answer.body
    answer = await server.post(path, body | {"model": "model:3"})
    assert (answer.status, b"model:3" in answer.body) == (404, True)


async def test_the_log_names_the_version(
    serve: Serve, model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    directory = model_dir({"serving.properties": SCRIPTED})
    server = await serve(directory)
    assert (await register(server, directory, model_name="model", model_version="2")).status == 200
    assert (await ask(server, "DELETE", "/models/model/2")).status == 200
    assert "model model is registered in version 2: backend scripted" in caplog.text
    assert "model model is unregistered in version 2" in caplog.text


async def test_tokens_of_a_version(server: RunningServer) -> None:
    assert (await server.post("/tokenize", {"model": "model:2", "prompt": "Hello"})).json()["count"] == 1
    assert (await server.post("/tokenize", {"model": "model:3", "prompt": "Hello"})).status == 404


async def test_versions_over_kserve_http(server: RunningServer) -> None:
    path = "/v2/models/model/versions/{}"
    for version, text in (("1", "one"), ("2", "two")):
        answer = (await server.post(f"{path.format(version)}/generate", {"text_input": "a"})).json()
        assert (answer["model_version"], answer["text_output"]) == (version, f"a{text}")
        assert (await server.get(f"{path.format(version)}/ready")).status == 200
        (told,) = (await server.get(f"{path.format(version)}/stats")).json()["model_stats"]
        assert (told["version"], told["inference_count"]) == (version, 1)
        assert (await server.get(path.format(version))).json()["versions"] == ["1", "2"]
    assert (await server.post(f"{path.format(3)}/generate", {"text_input": "a"})).status == 404
    assert [each["version"] for each in (await server.post("/v2/repository/index")).json()] == ["1", "2"]


async def test_no_version_answers_for_another(server: RunningServer) -> None:
    assert (await ask(server, "PUT", "/models/model/2", default=True)).status == 200
    assert (await ask(server, "DELETE", "/models/model/2")).status == 200  # the first one is the default again
    assert (await server.post("/v2/models/model/versions/2/generate", {"text_input": "a"})).status == 404
    assert (await server.post("/v1/chat/completions", CHAT | {"model": "model:2"})).status == 404


async def test_version_1_is_not_another_default(server: RunningServer, model_dir: ModelDirectory) -> None:
    third = model_dir({"serving.properties": SCRIPTED}, "third")
    for version in ("7", "8"):
        assert (await register(server, third, model_name="later", model_version=version)).status == 200
    answer = await server.post("/v2/models/later/versions/1/generate", {"text_input": "a"})
    assert (answer.status, answer.json()) == (404, {"error": "model `later` has no version 1"})


async def test_versions_over_grpc(server: RunningServer) -> None:
    text = ("text_input", "BYTES", [1], {"bytes_contents": [b"a"]})
    async with stub_of(server) as stub:
        for version, said in (("", b"one"), ("1", b"one"), ("2", b"two")):
            answer = await stub.ModelInfer(infer_request(text, model_version=version))
            assert answer.model_version == (version or "1")
            assert answer.raw_output_contents[0].endswith(said)
            assert (await stub.ModelReady(service_pb2.ModelReadyRequest(name="model", version=version))).ready
        assert not (await stub.ModelReady(service_pb2.ModelReadyRequest(name="model", version="3"))).ready
        found = await stub.ModelStatistics(service_pb2.ModelStatisticsRequest())
        assert [(each.version, each.inference_count) for each in found.model_stats] == [("1", 2), ("2", 1)]


async def test_kept_responses_of_a_version(server: RunningServer) -> None:
    kept = (await server.post("/v1/responses", {"model": "model:2", "input": "Hello"})).json()
    assert (await server.get(f"/v1/responses/{kept['id']}")).json() == kept
    backend = server.dispatcher.find("model:2").backend
    assert isinstance(backend, ScriptedBackend)
    backend.enqueue(script := Script("two", hold=True))
    body = {"model": "model:2", "input": "Hello", "stream": True}
    async with server.client.post("/v1/responses", json=body) as streamed:
        await streamed.content.readline()
        begun = orjson.loads((await streamed.content.readline()).removeprefix(b"data: "))["response"]
        await script.started.wait()
        assert (await server.post(f"/v1/responses/{begun['id']}/cancel")).json()["status"] == "cancelled"
        assert b'"cancelled"' in await streamed.read()


async def test_requests_of_a_version_can_be_aborted(server: RunningServer) -> None:
    backend = server.dispatcher.find("model:2").backend
    assert isinstance(backend, ScriptedBackend)
    backend.enqueue(script := Script("two", hold=True))
    body = {"model": "model:2", "prompt": "Hello", "request_id": "mine"}
    asked = asyncio.create_task(server.post("/v1/completions", body))
    await script.started.wait()
    assert (await server.post("/v1/abort_request", {"request_id": "mine"})).status == 200
    assert (await asked).json()["choices"][0]["finish_reason"] == "abort"


async def test_change_of_all_versions(server: RunningServer) -> None:
    for path, size in ("/models/model", 3), ("/models/model/2", 4):
        assert (await ask(server, "PUT", path, job_queue_size=size)).status == 200
    described = (await ask(server, "GET", "/models/model")).json()
    assert [each["models"][0]["queueSize"] for each in described] == [3, 4]
