"""The files of the pages: who gets them at `/`, how they are sent, and what they may load."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import lmi_handlers.pages
from lmi_core.calls.call import Call
from lmi_core.handler import Answer, Handler, Route
from lmi_core.hookspecs import hookimpl
from lmi_core.served_model import ServedModels
from lmi_handlers.pages.handler import POLICY, PagesHandler, static_files
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
STATIC = Path(lmi_handlers.pages.__file__).with_name("static")
VENDORED = STATIC.with_name("vendored")
MAX_LINES = 400


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def test_browsers_get_the_page(server: RunningServer) -> None:
    async with server.client.get("/", headers={"Accept": BROWSER}) as response:
        assert (response.status, response.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert (await response.text()).startswith("<!DOCTYPE html>")
        assert response.headers["Vary"] == "Accept"
        assert response.headers["Content-Security-Policy"] == POLICY


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/html;q=0, */*", "", "text/htmlx"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_other_clients_get_what_they_ask_for(server: RunningServer, method: str, accept: str) -> None:
    async with server.client.request(method, "/", headers={"Accept": accept}) as response:
        assert (response.status, response.content_type) == (200, "text/plain")
        assert await response.read() == (b"Ollama is running" if method == "GET" else b"")


async def test_posts_to_the_root_are_requests_of_tgi(server: RunningServer) -> None:
    answer = await server.post("/", {"inputs": "Hi"}, headers={"Accept": BROWSER})
    assert answer.json()[0]["generated_text"]


async def test_a_file_is_sent_once(server: RunningServer) -> None:
    async with server.client.get("/pages/shared/dom.js") as response:
        assert (response.status, response.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-cache"
        tag = response.headers["ETag"]
    for known in (tag, f'"other", W/{tag}'):
        async with server.client.get("/pages/shared/dom.js", headers={"If-None-Match": known}) as again:
            assert (again.status, await again.read(), again.headers["ETag"]) == (304, b"", tag)


@pytest.mark.parametrize(
    "path",
    ["/pages/chat/none.js", "/pages/none/dom.js", "/pages/shared/..%2Fhandler.py", "/pages/..%2F..%2Fpages/handler.py"],
)
async def test_nothing_else_is_sent(server: RunningServer, path: str) -> None:
    answer = await server.get(path)
    assert (answer.status, answer.content_type) == (404, "application/json")
    assert answer.json()["code"] == 404


async def test_every_file_is_sent(server: RunningServer) -> None:
    files = {(path.parent.name, path.name): path for path in STATIC.rglob("*") if path.is_file()}
    assert files.keys() == static_files().keys()
    for (page, name), path in files.items():
        assert (await server.get(f"/pages/{page}/{name}")).body == path.read_bytes()


def own_files() -> list[Path]:
    return [path for path in STATIC.rglob("*.*") if path.parent.name != "vendor"]


def test_vendored_files_are_the_published_ones() -> None:
    packages = json.loads((VENDORED / "packages.json").read_text())
    hashes = {name: file["sha256"] for package in packages for name, file in package["files"].items()}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (STATIC / "vendor").iterdir()}
    assert found == hashes
    for package in packages:
        assert re.fullmatch(r"\d+\.\d+\.\d+", package["version"])
        assert package["license"] in ("MIT", "BSD-3-Clause", "Apache-2.0", "ISC")
        assert (VENDORED / package["license_file"]).stat().st_size > 1000


def test_files_are_small_and_load_nothing_from_elsewhere() -> None:
    for path in own_files():
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) < MAX_LINES, path
        addresses = set(re.findall(r"https?://[^\"'`\s]*", text)) - {"http://www.w3.org/2000/svg"}
        assert addresses == set(), path
        assert "innerHTML" not in text, path


def test_the_page_names_files_that_exist() -> None:
    names = re.findall(r'(?:src|href)="pages/(\w+)/([\w.]+)"', (STATIC / "chat" / "index.html").read_text())
    assert names
    assert set(names) <= static_files().keys()
    for path in own_files():
        for name in re.findall(r'(?:from |url\()"([^"]+)"', path.read_text()):
            assert (path.parent / name).resolve().is_file(), (path, name)


async def own_root(call: Call, dispatcher: ServedModels) -> Answer:
    return Answer(200, "text/html", b"mine")


class OwnRoot(PagesHandler):
    name = "own_root"
    routes = (Route("/", "GET", own_root, "Mine"),)


class OwnRootPlugin:
    @hookimpl
    def lmi_register_handlers(self, register: Callable[[type[Handler]], None]) -> None:
        register(OwnRoot)


async def test_a_plugin_may_have_the_root_itself(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}), plugins=[OwnRootPlugin()])
    async with server.client.get("/", headers={"Accept": BROWSER}) as response:
        assert await response.read() == b"mine"
