"""API keys over HTTP and gRPC: who gets in, and what the others are told, in the form of each API."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import huggingface_hub
import ollama
import openai
import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from tritonclient.grpc import aio as triton
from tritonclient.utils import InferenceServerException

from lmi_core.calls.access import Access
from lmi_core.plugins.loading import load_plugins
from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.credentials import Secret
from lmi_handlers.access.options import AccessOptions
from lmi_handlers.testing import running_server
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, RunningServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY, TOKEN = "sk-ann", "token-of-operators"
KEYS = [f"ann {KEY}", "slow sk-slow requests_per_minute=1", "one sk-one max_concurrent_requests=1"]
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
SECONDS = 60
ROUTES = [route for handler in load_plugins().handlers for route in handler.routes]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    directory = tmp_path_factory.mktemp("keys") / "model"
    directory.mkdir()
    (directory / "serving.properties").write_text(SCRIPTED)
    access = AccessOptions(api_keys=ApiKeys(KEYS), management_token=Secret.of(TOKEN))
    async with running_server(directory, grpc=True, access=access) as running:
        yield running


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


SHAPES: list[tuple[str, Any, int, Any]] = [
    ("/v1/chat/completions", CHAT, 401, {"code": "invalid_api_key", "type": "invalid_request_error", "param": None}),
    ("/v1/messages", CHAT, 401, {"type": "authentication_error"}),
    ("/v1/responses", {"input": "Hi"}, 401, {"code": "invalid_api_key"}),
    ("/api/chat", CHAT, 401, None),
    ("/invocations", {"inputs": "Hi"}, 401, None),
    ("/generate", {"inputs": "Hi"}, 401, None),
    ("/v2/models/model/generate", {"text_input": "Hi"}, 401, None),
    ("/v1/generate", {"prompt": "Hi"}, 401, None),
]


@pytest.mark.parametrize(("path", "body", "status", "content"), SHAPES)
async def test_form_of_the_refusal(server: RunningServer, path: str, body: Any, status: int, content: Any) -> None:
    for headers in ({}, bearer("sk-an"), {"x-api-key": ""}, {"Authorization": KEY}, {"Authorization": f"Basic {KEY}"}):
        answer = await server.post(path, body, headers=headers)
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (status, "Bearer")
        text = answer.body.decode()
        assert "an API key is needed, as `Authorization: Bearer` or `x-api-key`" in text
        assert "sk-an" not in text
        if content is not None:
            error = answer.json()["error"]
            assert {name: error[name] for name in content} == content
    assert server.scripted.history == []


async def test_form_of_sagemaker(server: RunningServer) -> None:
    answer = await server.post("/endpoints/e/invocations", {"inputs": "Hi"})
    assert (answer.status, answer.json()["__type"]) == (403, "UnrecognizedClientException")


@pytest.mark.parametrize(
    "headers", [bearer(KEY), {"authorization": f"bearer  {KEY}"}, {"x-api-key": KEY}, {"api-key": KEY}, bearer(TOKEN)]
)
async def test_where_a_key_is_shown(server: RunningServer, headers: dict[str, str]) -> None:
    assert (await server.post("/v1/chat/completions", CHAT, headers=headers)).status == 200
    server.scripted.history.clear()


def path_of(path: str) -> str:
    for name, value in (("model", "model"), ("version", "1"), ("page", "chat"), ("file", "main.js")):
        path = path.replace(f"{{{name}}}", value)
    return path.replace("{response_id}", "resp_1").replace("{name}", "a").replace("{endpoint}", "e")


async def test_every_route_asks_for_a_key_but_what_everybody_may_ask(server: RunningServer) -> None:
    for route in ROUTES:
        if route.permitted is Access.MONITORING:
            continue
        async with server.client.request(route.method, path_of(route.path)) as response:
            if route.permitted in (Access.EVERYBODY, Access.CONSOLE):
                assert response.status == 200, route
            else:
                aws = route.path.startswith("/endpoints/")  # whose clients know 403 only
                assert response.status == (403 if aws else 401), route
    assert (await server.get("/ping")).status == 200


async def test_a_key_is_not_the_token_of_operators(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/models/model/adapters"
    assert (await server.get(path)).status == 401
    refused = await server.get(path, headers=bearer(KEY))
    assert (refused.status, "management needs the management_token" in refused.body.decode()) == (401, True)
    assert (await server.get(path, headers=bearer(TOKEN))).status == 200
    assert (await server.get(path, headers={**bearer(TOKEN), "Host": "other.example"})).status == 200
    foreign = await server.get(path, headers={**bearer(TOKEN), "Origin": "http://other.example"})
    assert foreign.status == 403
    monkeypatch.setattr(web.BaseRequest, "remote", "192.0.2.7")
    assert (await server.get(path, headers=bearer(TOKEN))).status == 403


async def test_a_limit_per_minute(server: RunningServer) -> None:
    first = await server.post("/v1/completions", {"prompt": "Hi"}, headers=bearer("sk-slow"))
    assert first.status == 200
    assert first.headers["x-ratelimit-limit-requests"] == "1"
    assert first.headers["x-ratelimit-remaining-requests"] == "0"
    assert first.headers["x-ratelimit-reset-requests"].endswith("s")
    for path, body, _, _ in SHAPES:
        refused = await server.post(path, body, headers=bearer("sk-slow"))
        assert refused.status == 429
        assert 0 < int(refused.headers["Retry-After"]) <= 60
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert "the API key slow may start 1 requests per minute" in refused.body.decode()
    assert (await server.get("/v1/models", headers=bearer("sk-slow"))).status == 200
    assert (await server.post("/v1/completions", {"prompt": "Hi"}, headers=bearer(KEY))).status == 200


async def test_a_limit_of_requests_at_the_same_time(server: RunningServer) -> None:
    held = Script("One two three", hold=True)
    server.scripted.enqueue(held)
    streamed = {"prompt": "Hi", "stream": True}
    async with server.client.post("/v1/completions", json=streamed, headers=bearer("sk-one")):
        await asyncio.wait_for(held.started.wait(), SECONDS)
        refused = await server.post("/v1/completions", {"prompt": "Hi"}, headers=bearer("sk-one"))
        assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert (await server.post("/v1/completions", {"prompt": "Hi"}, headers=bearer(KEY))).status == 200
    await asyncio.wait_for(held.closed.wait(), SECONDS)
    assert (await server.post("/v1/completions", {"prompt": "Hi"}, headers=bearer("sk-one"))).status == 200


async def test_requests_are_aborted_by_their_own_key_alone(server: RunningServer) -> None:
    held = Script("One two three", hold=True)
    server.scripted.enqueue(held)
    body = {"prompt": "Hi", "stream": True}
    named = {**bearer("sk-one"), "x-request-id": "job-1"}
    async with server.client.post("/v1/completions", json=body, headers=named) as streamed:
        await asyncio.wait_for(held.started.wait(), SECONDS)
        for request_id in ("job-1", "cmpl-job-1"):
            refused = await server.post("/v1/abort_request", {"request_id": request_id}, headers=bearer(KEY))
            assert (refused.status, "is running" in refused.body.decode()) == (404, True)
        assert not held.closed.is_set()
        aborted = await server.post("/v1/abort_request", {"request_id": "job-1"}, headers=bearer("sk-one"))
        assert aborted.json()["aborted"]
        assert b'"finish_reason":"abort"' in await streamed.read()
    await asyncio.wait_for(held.closed.wait(), SECONDS)


async def test_operators_abort_requests_of_every_key(server: RunningServer) -> None:
    held = Script("One two three", hold=True)
    server.scripted.enqueue(held)
    named = {**bearer("sk-one"), "x-request-id": "job-2"}
    async with server.client.post("/v1/completions", json={"prompt": "Hi", "stream": True}, headers=named) as streamed:
        await asyncio.wait_for(held.started.wait(), SECONDS)
        aborted = await server.post("/v1/abort_request", {"request_id": "job-2"}, headers=bearer(TOKEN))
        assert aborted.json()["aborted"]
        assert b'"finish_reason":"abort"' in await streamed.read()


async def test_cancelling_a_response_ends_no_other_key_s_request(server: RunningServer) -> None:
    """Give a response the id of another key's request, and cancel it."""
    other, own = Script("One two three", hold=True), Script("One two", hold=True)
    server.scripted.enqueue(other, own)
    body = {"prompt": "Hi", "stream": True}
    async with server.client.post(
        "/v1/completions", json=body, headers={**bearer("sk-one"), "x-request-id": "job-3"}
    ) as streamed:
        await asyncio.wait_for(other.started.wait(), SECONDS)
        named = {**bearer(KEY), "x-request-id": "job-3"}
        async with server.client.post("/v1/responses", json={"input": "x", "stream": True}, headers=named) as response:
            await response.content.readline()
            created = orjson.loads((await response.content.readline()).removeprefix(b"data: "))["response"]
            await asyncio.wait_for(own.started.wait(), SECONDS)
            path = f"/v1/responses/{created['id']}/cancel"
            assert (await server.post(path, headers=bearer(KEY))).json()["status"] == "cancelled"
            await response.read()
        assert (own.closed.is_set(), other.closed.is_set()) == (True, False)
        aborted = await server.post("/v1/abort_request", {"request_id": "job-3"}, headers=bearer("sk-one"))
        assert aborted.json()["aborted"]
        await streamed.read()


async def test_ids_that_the_server_gives_are_long_and_random(server: RunningServer) -> None:
    names = {
        (await server.post("/v1/completions", {"prompt": "Hi"}, headers=bearer(KEY))).headers["x-request-id"]
        for _ in range(9)
    }
    assert len(names) == 9
    assert all(len(bytes.fromhex(name)) == 16 for name in names)


async def test_the_keys_of_client_libraries(server: RunningServer) -> None:
    url, user = server.server.url, [{"role": "user", "content": "Hi"}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0) as client:
        assert (await client.chat.completions.create(model="model", messages=user)).choices  # type: ignore[arg-type]
        with pytest.raises(openai.AuthenticationError):
            await client.with_options(api_key="wrong").models.list()
        slow = client.with_options(api_key="sk-slow")
        with pytest.raises(openai.RateLimitError):  # the minute's request has been made
            await slow.completions.create(model="model", prompt="Hi")
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as claude:
        arguments: Any = {"model": "model", "max_tokens": 2, "messages": user}
        assert (await claude.messages.create(**arguments)).content
        with pytest.raises(anthropic.AuthenticationError):
            await claude.with_options(api_key="wrong").messages.create(**arguments)
    async with ollama.AsyncClient(url, headers=bearer(KEY)) as ours:
        assert (await ours.chat("model", messages=user)).message.content
    async with ollama.AsyncClient(url, headers=bearer("wrong")) as others:
        with pytest.raises(ollama.ResponseError, match="an API key is needed"):
            await others.list()
    async with huggingface_hub.AsyncInferenceClient(base_url=url, api_key=KEY) as hub:
        assert (await hub.chat_completion(user, max_tokens=2)).choices


async def test_grpc(server: RunningServer) -> None:
    async with triton.InferenceServerClient(server.grpc_address) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("model")
        for call in (client.get_model_metadata("model"), client.get_model_repository_index()):
            with pytest.raises(InferenceServerException, match="an API key is needed") as raised:
                await call
            assert raised.value.status() == "StatusCode.UNAUTHENTICATED"
        for headers in ({"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}):
            assert (await client.get_model_metadata("model", headers=headers)).name == "model"
