"""The access to routes: each says who may use it, and those that manage the server are not for everybody."""

import pytest
from aiohttp import web

from lmi_core.calls.access import Access
from lmi_core.handler import READING_METHODS, Route
from lmi_core.plugins.loading import load_plugins
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.module_server import module_server

ROUTES = [route for handler in load_plugins().handlers for route in handler.routes]
OTHER_HOST = "192.0.2.7"
# The parts of paths that only routes which manage the server have, and those of the paths that everybody may ask.
MANAGED = ("/models", "/server")
PROBES = {"/liveness", "/readiness", "/health", "/v2/health/live", "/v2/health/ready"}
PROBES |= {f"/v2/models/{{model}}{version}/ready" for version in ("", "/versions/{version}")}
SAME_ON_EVERY_SERVER = {"/", "/docs", "/docs/", "/pages/{page}/{file}"}


server = module_server({"adapters/french/model.py": "", "serving.properties": SCRIPTED})


def of(access: Access) -> list[Route]:
    return [route for route in ROUTES if route.permitted is access]


def test_every_route_that_may_change_something_says_who_may_use_it() -> None:
    silent = {(route.method, route.path) for route in ROUTES if route.answer is not None and route.access is None}
    assert {(method, path) for method, path in silent if method not in READING_METHODS} == set()


def test_routes_that_manage_the_server_are_for_operators() -> None:
    """Nothing below these paths is for clients, whether it changes or only reads: a page must not know it either."""
    for route in ROUTES:
        manages = route.path.startswith(MANAGED) and route.answer is not None
        operators = route.permitted in (Access.OPERATORS, Access.MONITORING)
        assert operators or not manages, f"{route.method} {route.path} must say access=Access.OPERATORS"
    assert all(route.refuses_foreign_pages for route in of(Access.OPERATORS))


def test_what_everybody_may_ask_is_known() -> None:
    """What needs no API key tells no more than that a server or a model is there."""
    assert {route.path for route in of(Access.EVERYBODY)} <= PROBES | SAME_ON_EVERY_SERVER | {"/console", "/pages"}
    assert {route.path for route in of(Access.EVERYBODY)} >= PROBES
    assert {route.method for route in of(Access.EVERYBODY)} == {"GET"}


def path_of(route: Route) -> str:
    return route.path.replace("{model}", "model").replace("{name}", "french").replace("{version}", "1")


@pytest.mark.asyncio(loop_scope="module")
async def test_other_hosts_manage_nothing(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web.BaseRequest, "remote", OTHER_HOST)
    routes = of(Access.OPERATORS)
    assert {"/models/{model}/adapters", "/models/{model}/adapters/{name}"} <= {route.path for route in routes}
    for route in routes:
        async with server.client.request(route.method, path_of(route)) as response:
            assert response.status == 403, route
            assert "can only be managed from the server's own host" in await response.text()
    assert list(server.model.adapters.folders) == ["french"]


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "x-real-ip"])
@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_proxy_on_this_host_forwards_comes_from_elsewhere(server: RunningServer, header: str) -> None:
    answer = await server.get("/models/model/adapters", headers={header: "127.0.0.1"})
    assert answer.status == 403
    assert (await server.post("/invocations", {"inputs": "hi"}, headers={header: "192.0.2.7"})).status == 200
    assert (await server.get("/models/model/adapters")).status == 200


@pytest.mark.asyncio(loop_scope="module")
async def test_an_unknown_model_is_not_told_to_other_hosts(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await server.get("/models/other/adapters")).status == 404
    monkeypatch.setattr(web.BaseRequest, "remote", OTHER_HOST)
    assert (await server.get("/models/other/adapters")).status == 403


async def test_open_to_other_hosts_by_model(
    serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_model = model_dir({"serving.properties": f"{SCRIPTED}open_management=true\n"}, name="store/open")
    model_dir({"serving.properties": SCRIPTED}, name="store/closed")
    server = await serve(open_model.parent)
    monkeypatch.setattr(web.BaseRequest, "remote", OTHER_HOST)
    assert (await server.get("/models/open/adapters", headers={"X-Forwarded-For": OTHER_HOST})).status == 200
    assert (await server.get("/models/closed/adapters")).status == 403
