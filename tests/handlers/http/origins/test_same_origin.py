"""Routes that change the server, asked by pages of other web sites and under names that are not the server's."""

import asyncio
import socket
from pathlib import Path

import orjson
import pytest

from lmi_core.calls.access import Access
from lmi_core.errors import ConfigurationError
from lmi_core.handler import Route
from lmi_core.plugins.loading import load_plugins
from lmi_handlers.testing import running_server
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.module_server import module_server

ADAPTERS = "/models/model/adapters"
ROUTES = [route for handler in load_plugins().handlers for route in handler.routes]
# Everybody's, also a page's: what they answer is in the request, or says no more than the routes that generate.
OPEN = {"/tokenize", "/detokenize", "/v2/tokenizer", "/v2/decode", "/v1/split_text", "/v1/metadata_text"}
OPEN |= {"/v1/messages/count_tokens"}
OPEN |= {"/endpoints/{endpoint}/async-invocations"}  # which refuses everybody
OPEN |= {route.path for route in ROUTES if route.path.startswith("/api/")}  # Ollama's, which change nothing here
OPEN |= {"/v1/responses/input_tokens"}


LEAVES_A_TRACE = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n"
server = module_server(
    {
        "serving.properties": SCRIPTED,
        "adapters/french/model.py": LEAVES_A_TRACE,
        "new/model.py": LEAVES_A_TRACE,
    }
)


async def register(server: RunningServer, headers: dict[str, str], path: str = "?name=new&src=new") -> tuple[int, str]:
    """Ask for an adapter as a page can without a preflight; the status, and the error."""
    answered = await server.post(ADAPTERS + path, data=b"", headers=_of(server, headers))
    return answered.status, answered.json().get("error", "")


async def unregister(server: RunningServer) -> None:
    async with server.client.delete(f"{ADAPTERS}/new") as response:
        assert response.status == 200


def _of(server: RunningServer, headers: dict[str, str]) -> dict[str, str]:
    return {name: value.replace("PORT", str(server.server.port)) for name, value in headers.items()}


def folder(server: RunningServer) -> Path:
    return server.model.plan.directory / "new"


FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "https://evil.example:PORT"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://localhost"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://127.0.0.1.evil.example:PORT"},
    {"Origin": "http://evil.example@127.0.0.1:PORT"},
    {"Origin": "chrome-extension://127.0.0.1:PORT"},
    {"Origin": "file://"},
    {"Host": "evil.example:PORT"},
    {"Host": "evil.example:PORT", "Origin": "http://evil.example:PORT", "Sec-Fetch-Site": "same-origin"},
    {"Host": "localhost.evil.example:PORT"},
    {"Host": "localhost:1"},
    {"Host": "127.0.0.1"},
    {"Host": "192.0.2.7:PORT"},
    {"Host": "127.0.0.1:PORT@evil.example"},
    {"Host": "[::1"},
    {"Host": ""},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:PORT"},
]

OWN: list[dict[str, str]] = [
    {},
    {"Host": "localhost:PORT"},
    {"Host": "LocalHost.:PORT"},
    {"Host": "127.0.0.1:PORT"},
    {"Host": "[::1]:PORT"},
    {"Host": "[::ffff:127.0.0.1]:PORT"},
    {"Origin": "http://127.0.0.1:PORT", "Sec-Fetch-Site": "same-origin"},
    {"Origin": "http://localhost:PORT"},
    {"Origin": "http://[::1]:PORT", "Host": "[::1]:PORT"},
    {"Sec-Fetch-Site": "none"},
    {"Content-Type": "application/x-www-form-urlencoded"},
]


@pytest.mark.asyncio(loop_scope="module")
async def test_foreign_pages_and_names_register_nothing(server: RunningServer) -> None:
    for headers in FOREIGN:
        status, error = await register(server, headers)
        assert status == 403, headers
        assert ("`Host` must be this server's" in error) == ("Host" in headers), error
        assert ("allowed_hosts" in error) == ("cross-site" not in headers.values())
    assert not (folder(server) / "ran").exists()
    assert list(server.model.adapters.folders) == ["french"]


@pytest.mark.asyncio(loop_scope="module")
async def test_own_pages_names_and_clients_register(server: RunningServer) -> None:
    for headers in OWN:
        assert await register(server, headers) == (200, ""), headers
        await unregister(server)
    assert (folder(server) / "ran").exists()


def guarded_routes() -> list[Route]:
    return [route for route in ROUTES if route.refuses_foreign_pages]


def test_what_is_guarded() -> None:
    own_answers = [route for route in ROUTES if route.answer is not None]
    changing = {(route.method, route.path) for route in own_answers if route.method != "GET" and route.path not in OPEN}
    assert {("POST", "/v1/abort_request"), ("DELETE", "/models/{model}/adapters/{name}")} <= changing
    guarded = {(route.method, route.path) for route in guarded_routes()}
    assert changing <= guarded
    of_operators = {(route.method, route.path) for route in ROUTES if route.permitted is Access.OPERATORS}
    assert ("GET", "/models/{model}/adapters/{name}") in of_operators
    assert guarded - changing == of_operators - changing  # what these only read, no page must know either


@pytest.mark.asyncio(loop_scope="module")
async def test_every_guarded_route_refuses(server: RunningServer) -> None:
    for route in guarded_routes():
        path = route.path.replace("{model}", "model").replace("{name}", "french").replace("{response_id}", "resp_1")
        path = path.replace("{version}", "1")
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            async with server.client.request(route.method, path, headers=headers) as response:
                assert response.status == 403, (route, headers)
                assert "application/json" in response.headers["Content-Type"]
    assert list(server.model.adapters.folders) == ["french"]


@pytest.mark.asyncio(loop_scope="module")
async def test_routes_that_change_nothing_are_everybody_s(server: RunningServer) -> None:
    for headers in FOREIGN:
        answer = await server.post("/invocations", {"inputs": "hi"}, headers=_of(server, headers))
        assert answer.status == 200, headers
        answer = await server.post("/v2/tokenizer", {"prompt": "hi"}, headers=_of(server, headers))
        assert answer.status == 200, headers


async def raw(server: RunningServer, *lines: str) -> tuple[int, bytes]:
    """The status and the body of the answer to exactly these lines."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


@pytest.mark.asyncio(loop_scope="module")
async def test_headers_that_only_a_socket_sends(server: RunningServer) -> None:
    own, close = f"Host: 127.0.0.1:{server.server.port}", "Connection: close"
    delete = f"DELETE {ADAPTERS}/french"
    two_names = await raw(server, f"{delete} HTTP/1.1", own, "Host: evil.example", close)
    assert two_names == (400, b"Duplicate 'Host' header found.")
    two_pages = await raw(server, f"{delete} HTTP/1.1", own, f"Origin: http://{own[6:]}", "Origin: null", close)
    assert two_pages[0] == 403
    assert list(server.model.adapters.folders) == ["french"]
    status, body = await raw(server, f"GET {ADAPTERS} HTTP/1.0")  # which has no Host, and which no browser speaks
    assert (status, orjson.loads(body)["adapters"][0]["name"]) == (200, "french")


ALLOWED = "allowed_hosts=models.example.com, other.example.com:443 *.wild.example\n"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "models.example.com"}, 200),
        ({"Host": "Models.Example.com:8443"}, 200),
        ({"Host": "127.0.0.1:PORT", "Origin": "https://models.example.com"}, 200),
        ({"Host": "models.example.com", "Origin": "https://models.example.com"}, 200),
        ({"Host": "models.example.com", "Origin": "https://evil.example"}, 403),
        ({"Host": "a.models.example.com"}, 403),
        ({"Host": "other.example.com:443"}, 200),
        ({"Host": "127.0.0.1:PORT", "Origin": "https://other.example.com"}, 200),
        ({"Host": "127.0.0.1:PORT", "Origin": "http://other.example.com"}, 403),
        ({"Host": "other.example.com"}, 403),
        ({"Host": "a.b.wild.example:9"}, 200),
        ({"Host": "wild.example"}, 403),
        ({"Host": "evilwild.example"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost:PORT"}, 200),
    ],
)
async def test_allowed_hosts(serve: Serve, model_dir: ModelDirectory, headers: dict[str, str], status: int) -> None:
    files = {"serving.properties": SCRIPTED + ALLOWED, "new/model.py": ""}
    server = await serve(model_dir(files))
    assert (await register(server, headers))[0] == status


async def test_any_name_is_allowed_and_pages_still_are_not(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": f"{SCRIPTED}allowed_hosts=*\n", "new/model.py": ""}))
    assert (await register(server, {"Host": "lmi.cluster.local", "Origin": "http://evil.example"}))[0] == 403
    assert (await register(server, {"Host": "lmi.cluster.local", "Origin": "null"}))[0] == 403
    assert (await register(server, {"Host": "lmi.cluster.local", "Origin": "http://lmi.cluster.local"}))[0] == 200


@pytest.mark.parametrize("value", ["http://models.example.com", "models.example.com/path", "a*.example.com", "a:b"])
async def test_allowed_hosts_that_are_none(serve: Serve, model_dir: ModelDirectory, value: str) -> None:
    directory = model_dir({"serving.properties": f"{SCRIPTED}allowed_hosts={value}\n"})
    with pytest.raises(ConfigurationError, match=r"allowed_hosts must be host names, such as .*Given: "):
        await serve(directory)


async def test_name_that_the_server_listens_on(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED, "new/model.py": ""})
    async with running_server(directory, host="127.1") as server:  # a name to all but the resolver
        for name, status in (("127.2", 403), ("127.1", 200)):
            request = f"POST {ADAPTERS}?name=new&src=new HTTP/1.1"
            host = f"Host: {name}:{server.server.port}"
            assert (await raw(server, request, host, "Content-Length: 0", "Connection: close"))[0] == status


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_ipv6(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED, "new/model.py": ""})
    async with running_server(directory, host="::1") as server:
        for headers in ({"Host": "evil.example:PORT"}, {"Host": "[::2]:PORT"}, {"Origin": "http://[::1]:1"}):
            assert (await register(server, headers))[0] == 403
        assert (await register(server, {"Origin": "http://[::1]:PORT"}))[0] == 200
        await unregister(server)
        assert (await register(server, {}))[0] == 200
