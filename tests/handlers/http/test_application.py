"""Routes that belong to no dialect."""

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def test_ping(server: RunningServer) -> None:
    answer = await server.get("/ping")
    assert (answer.status, answer.json()) == (200, {"status": "Healthy"})
    assert answer.headers["x-request-id"]


async def test_ping_while_a_model_is_not_ready(server: RunningServer) -> None:
    server.model.ready = False
    answer = await server.get("/ping")
    assert answer.status == 503
    assert answer.json() == {"status": "Unhealthy", "error": "model model is loading"}
    assert (await server.post("/invocations", {"inputs": "hi"})).status == 503


async def test_ping_while_the_server_drains(server: RunningServer) -> None:
    await server.dispatcher.drain(0)
    assert (await server.get("/ping")).status == 503
    answer = await server.post("/invocations", {"inputs": "hi"})
    assert (answer.status, answer.json()["error"]) == (503, "the server is shutting down")


async def test_unknown_path(server: RunningServer) -> None:
    answer = await server.post("/invocation", {"inputs": "hi"})
    assert (answer.status, answer.json()["code"]) == (404, 404)
    expected = "there is no route POST /invocation. Did you mean `/invocations`? GET /docs lists all routes"
    assert answer.json()["error"] == expected


async def test_options(server: RunningServer) -> None:
    """Answers are those of DJLServing."""
    for path, allowed in ("/", "GET, HEAD, POST"), ("/predictions/model", "POST"):
        async with server.client.options(path) as response:
            assert (response.status, await response.json()) == (200, {})
            assert response.headers["Allow"] == allowed


async def test_wrong_method(server: RunningServer) -> None:
    answer = await server.get("/invocations")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    assert answer.json()["error"].startswith("/invocations supports POST, not GET.")


async def test_websocket(server: RunningServer) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    async with server.client.get("/v1/responses", headers=upgrade) as response:
        assert (response.status, response.headers["Upgrade"]) == (426, "HTTP/1.1")
    async with server.client.get("/v1/nothing", headers=upgrade) as response:
        assert response.status == 404


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "message"),
    [
        ("POST", "/v1/chat/completion", 404, "unknown_url", "there is no route POST /v1/chat/completion. Did you mean"),
        ("GET", "/v1", 404, "unknown_url", "there is no route GET /v1."),
        (
            "POST",
            "/chat/completions",
            404,
            "unknown_url",
            "there is no route POST /chat/completions. Did you mean `/v1/",
        ),
        ("GET", "/v1/chat/completions", 405, "method_not_supported", "/v1/chat/completions supports POST, not GET."),
        ("POST", "/v1/responses/compact", 404, "unknown_url", "there is no route POST /v1/responses/compact."),
        ("DELETE", "/v1/models/m", 405, "method_not_supported", "/v1/models/m supports GET, HEAD, not DELETE."),
    ],
)
async def test_openai_clients_read_what_is_wrong_with_a_path(
    server: RunningServer, method: str, path: str, status: int, code: str, message: str
) -> None:
    async with server.client.request(method, path) as response:
        assert (response.status, response.content_type) == (status, "application/json")
        error = (await response.json())["error"]
        assert response.headers["x-request-id"]
    assert error.pop("message").startswith(message)
    assert error == {"type": "invalid_request_error", "param": None, "code": code}


@pytest.mark.parametrize("path", ["/api/chats", "/api/nothing/here", "/v2/models/model/generates", "/v2/nothing"])
async def test_errors_of_ollama_s_and_triton_s_paths_have_their_form(server: RunningServer, path: str) -> None:
    answer = await server.post(path, {})
    assert (answer.status, list(answer.json())) == (404, ["error"])
    assert answer.json()["error"].startswith(f"there is no route POST {path}.")


@pytest.mark.parametrize(
    "path", ["/ping", "/docs", "/openapi.json", "/v1/models", "/v1/models/model", "/v1/models/", "/health", "/v2"]
)
async def test_head_is_get_without_the_body(server: RunningServer, path: str) -> None:
    whole = await server.get(path)
    async with server.client.head(path) as response:
        assert (response.status, await response.read()) == (200, b"")
        assert response.headers["Content-Type"] == whole.headers["Content-Type"]
        assert response.headers.get("Content-Length", "0") == str(len(whole.body))


async def test_a_slash_at_the_end_is_the_same_route(server: RunningServer) -> None:
    assert (await server.get("/v1/models/")).json() == (await server.get("/v1/models")).json()
    assert (await server.get("/v1/models/model/")).json()["id"] == "model"
    body = {"messages": [{"role": "user", "content": "hi"}]}
    assert (await server.post("/v1/chat/completions/", body)).json()["object"] == "chat.completion"
    streamed = await server.post("/generate_stream/", {"inputs": "hi"})  # which form it has, the path says
    assert streamed.content_type == "text/event-stream"
    assert (await server.client.get("/v1/models/", allow_redirects=False)).status == 200
    answer = await server.get("/invocations/")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")


async def test_the_page_of_the_api_with_a_slash_leads_to_the_one_without(server: RunningServer) -> None:
    async with server.client.get("/docs/", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (308, "../docs")
    assert (await server.get("/docs/")).body == (await server.get("/docs")).body
