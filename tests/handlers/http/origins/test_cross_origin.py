"""Answers to pages of other web sites, byte by byte over a socket, as a browser reads them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lmi_core.calls.access import Access
from lmi_core.handler import Route
from lmi_core.plugins.loading import load_plugins
from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.cross_origin import CrossOrigin, Origin
from lmi_handlers.access.options import AccessOptions, ListenAddress
from lmi_handlers.http.listener import HttpListener
from lmi_handlers.testing import running_server
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer
from tests.handlers.access.test_clients import path_of
from tests.module_server import module_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

APP = "https://app.example.com"
EVIL = "https://evil.example"
LISTED = CrossOrigin([Origin.parse_pattern(APP)])
CHAT = "/v1/chat/completions"
STREAM = b'{"messages": [{"role": "user", "content": "Hi"}], "stream": true, "max_tokens": 3}'

ROUTES = [route for handler in load_plugins().handlers for route in handler.routes]

Answer = tuple[int, list[tuple[str, str]], bytes]


@asynccontextmanager
async def served(folder: ModelDirectory, access: AccessOptions) -> AsyncIterator[RunningServer]:
    async with running_server(folder({"serving.properties": SCRIPTED}), access=access) as running:
        yield running


# A server with a key that admits the pages of one origin.
server = module_server(SCRIPTED, access=AccessOptions(api_keys=ApiKeys(["ann sk-ann"]), cross_origin=LISTED))


async def ask(port: int, method: str, path: str, *headers: str, body: bytes = b"") -> Answer:
    """Send a request's own bytes, and return the answer's status, headers in lower case and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close", *headers]
        lines += [f"Content-Length: {len(body)}"] if body else []
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()
    first, *others = head.decode().split("\r\n")
    return (
        int(first.split()[1]),
        [(name.lower(), value) for name, value in (line.split(": ", 1) for line in others)],
        rest,
    )


async def preflight(port: int, path: str, origin: str, method: str = "POST", *headers: str) -> Answer:
    asked = [f"Origin: {origin}", f"Access-Control-Request-Method: {method}", *headers]
    return await ask(port, "OPTIONS", path, *asked)


def values(answer: Answer, name: str) -> list[str]:
    return [value for each, value in answer[1] if each == name]


def permits_nothing(answer: Answer) -> bool:
    return not any(name.startswith("access-control-") for name, _ in answer[1])


async def test_a_preflight_is_answered_before_a_key_is_asked_for(server: RunningServer) -> None:
    asked = "Access-Control-Request-Headers: authorization,content-type,x-stainless-os"
    answer = await preflight(server.server.port, CHAT, APP, "POST", asked)
    assert (answer[0], answer[2]) == (204, b"")
    assert values(answer, "access-control-allow-origin") == [APP]
    assert values(answer, "access-control-allow-methods") == ["GET, HEAD, POST, DELETE"]
    assert values(answer, "access-control-allow-headers") == ["authorization, content-type, x-stainless-os"]
    assert values(answer, "access-control-max-age") == ["600"]
    assert "Origin" in values(answer, "vary")[0].split(", ")
    assert not values(answer, "access-control-allow-credentials")


async def test_a_page_reads_a_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script("Hello"))
    headers = (f"Origin: {APP}", "Authorization: Bearer sk-ann", "Content-Type: application/json")
    answer = await ask(server.server.port, "POST", CHAT, *headers, body=STREAM)
    assert (answer[0], b"data: [DONE]" in answer[2]) == (200, True)
    assert values(answer, "access-control-allow-origin") == [APP]
    assert values(answer, "vary") == ["Origin"]
    assert "x-request-id" in values(answer, "access-control-expose-headers")[0].lower().split(", ")


async def test_a_page_reads_refusals(server: RunningServer) -> None:
    answer = await ask(server.server.port, "POST", CHAT, f"Origin: {APP}", body=STREAM)
    assert (answer[0], values(answer, "access-control-allow-origin")) == (401, [APP])
    assert "WWW-Authenticate" in values(answer, "access-control-expose-headers")[0].split(", ")


@pytest.mark.parametrize(
    "origin", [EVIL, "null", "", f"{APP}.evil.example", f"{APP}\r\nOrigin: {APP}", "https://" + "a" * 3000]
)
async def test_other_origins(server: RunningServer, origin: str) -> None:
    refused = await preflight(server.server.port, CHAT, origin)
    assert (refused[0], permits_nothing(refused)) == (403, True)
    assert b"cors_allowed_origin lists those that may" in refused[2]
    assert len(refused[2]) < 500
    headers = (f"Origin: {origin}", "Authorization: Bearer sk-ann")
    answer = await ask(server.server.port, "POST", CHAT, *headers, body=STREAM)
    assert (permits_nothing(answer), values(answer, "vary")) == (True, ["Origin"])


async def test_without_an_origin_the_answer_differs_from_that_to_a_page(server: RunningServer) -> None:
    answer = await ask(server.server.port, "GET", "/ping")
    assert (answer[0], permits_nothing(answer), values(answer, "vary")) == (200, True, ["Origin"])


async def test_pages_may_use_the_routes_of_clients_and_no_others(server: RunningServer) -> None:
    assert ROUTES
    for each in ROUTES:
        for path in (path_of(each.path), path_of(each.path).removesuffix("/") + "/"):
            await check_route(server, each, path)


async def check_route(server: RunningServer, route: Route, path: str) -> None:
    siblings = [known for known in ROUTES if (known.path, known.method) == (route.path, route.method)]
    answer = await preflight(server.server.port, path, APP, route.method)
    if all(known.permitted in (Access.CLIENTS, Access.EVERYBODY) for known in siblings):
        assert (answer[0], permits_nothing(answer)) == (204, False), path
        return
    assert permits_nothing(answer), path
    answered = await ask(server.server.port, route.method, path, f"Origin: {APP}")
    assert answered[0] != 200 or route.permitted is not Access.OPERATORS, path
    assert permits_nothing(answered), path


@pytest.mark.parametrize("path", ["/nothing", "/v1/nothing"])
async def test_unknown_routes_are_told(server: RunningServer, path: str) -> None:
    answer = await preflight(server.server.port, path, APP)
    assert (answer[0], permits_nothing(answer)) == (404, True)


async def test_an_admitted_page_may_use_guarded_routes_of_clients(server: RunningServer) -> None:
    key = "Authorization: Bearer sk-ann"
    path = "/v1/abort_request"
    body = b'{"request_id": "none"}'
    json = "Content-Type: application/json"
    refused = await ask(server.server.port, "POST", path, key, json, f"Origin: {EVIL}", body=body)
    assert refused[0] == 403
    foreign = await ask(server.server.port, "POST", path, key, json, "Sec-Fetch-Site: cross-site", body=body)
    assert foreign[0] == 403
    headers = (key, json, f"Origin: {APP}", "Sec-Fetch-Site: cross-site")
    taken = await ask(server.server.port, "POST", path, *headers, body=body)
    assert taken[0] != 403
    assert values(taken, "access-control-allow-origin") == [APP]


async def test_methods_and_headers(model_dir: ModelDirectory) -> None:
    rules = CrossOrigin(LISTED.origins, ["POST"], ["authorization"], allow_credentials=True)
    async with served(model_dir, AccessOptions(cross_origin=rules)) as server:
        port = server.server.port
        refused = await preflight(port, "/v1/models", APP, "GET")
        assert (refused[0], b"see cors_allowed_methods" in refused[2], permits_nothing(refused)) == (403, True, True)
        refused = await preflight(port, CHAT, APP, "POST", "Access-Control-Request-Headers: authorization, x-other")
        assert (refused[0], b"x-other" in refused[2], b"see cors_allowed_headers" in refused[2]) == (403, True, True)
        answer = await preflight(port, CHAT, APP, "POST", "Access-Control-Request-Headers: Authorization")
        assert values(answer, "access-control-allow-headers") == ["Authorization"]
        assert values(answer, "access-control-allow-credentials") == ["true"]
        read = await ask(port, "GET", "/v1/models", f"Origin: {APP}")
        assert values(read, "access-control-allow-credentials") == ["true"]


async def test_pages_of_every_web_site(model_dir: ModelDirectory) -> None:
    async with served(model_dir, AccessOptions(cross_origin=CrossOrigin(None))) as server:
        for origin in (EVIL, "null"):
            answer = await preflight(server.server.port, CHAT, origin)
            assert (answer[0], values(answer, "access-control-allow-origin")) == (204, ["*"])
            assert not values(answer, "access-control-allow-credentials")
            managing = await preflight(server.server.port, "/models/model/adapters", origin)
            assert permits_nothing(managing)
            registered = await ask(
                server.server.port, "POST", "/models/model/adapters?name=a&src=b", f"Origin: {origin}"
            )
            assert (registered[0], permits_nothing(registered)) == (403, True)


async def test_the_address_of_management_has_no_pages_of_others(model_dir: ModelDirectory) -> None:
    access = AccessOptions(cross_origin=CrossOrigin(None), management_address=ListenAddress("127.0.0.1", 0))
    async with served(model_dir, access) as server:
        assert isinstance(server.server.management, HttpListener)
        port = server.server.management.listening.port
        for path in ("/models/model/adapters", "/ping"):
            assert permits_nothing(await preflight(port, path, EVIL, "GET"))
            assert permits_nothing(await ask(port, "GET", path, f"Origin: {EVIL}"))


async def test_without_the_option_nothing_is_shared(model_dir: ModelDirectory) -> None:
    async with served(model_dir, AccessOptions()) as server:
        refused = await preflight(server.server.port, CHAT, APP)
        assert (refused[0], permits_nothing(refused)) == (405, True)
        answer = await ask(server.server.port, "GET", "/v1/models", f"Origin: {APP}")
        assert (answer[0], permits_nothing(answer), values(answer, "vary")) == (200, True, [])


async def test_other_uses_of_the_method_options(server: RunningServer) -> None:
    port = server.server.port
    assert (await ask(port, "OPTIONS", CHAT))[0] == 405
    assert (await ask(port, "OPTIONS", CHAT, f"Origin: {APP}"))[0] == 405
    assert (await preflight(port, CHAT, APP, "PO ST"))[0] == 405
