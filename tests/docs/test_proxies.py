"""The configurations of proxies in docs/how_to/deployment.md, with the programs themselves where they are installed."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import aiohttp
import psutil
import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.docs.pages import page
from tests.docs.snippets import snippets_of
from tests.ports import free_port

CONFIGURATIONS = {snippet.file: snippet.text for snippet in snippets_of(page("deployment.md")) if snippet.file}
NGINX_FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")

Command = Callable[[Path], list[str]]
COMMANDS: dict[str, tuple[str, Command]] = {
    "nginx": ("nginx.conf", lambda file: ["-e", "stderr", "-c", str(file), "-p", str(file.parent)]),
    "caddy": ("Caddyfile", lambda file: ["run", "--adapter", "caddyfile", "--config", str(file)]),
}


def configured(program: str, server: RunningServer, port: int, folder: Path) -> str:
    """Return the page's configuration with free ports, and with nginx's own files in the folder."""
    text = CONFIGURATIONS[COMMANDS[program][0]]
    assert "127.0.0.1:8080" in text
    assert "8443" in text
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{server.server.port}").replace("8443", str(port))
    if program == "caddy":
        return "{\n    admin off\n}\n" + text
    places = "".join(f"    {name}_temp_path {folder}/{name};\n" for name in NGINX_FOLDERS)
    own = f"daemon off;\npid {folder}/nginx.pid;\n"
    return own + text.replace("http {\n", f"http {{\n{places}    access_log off;\n", 1)


@asynccontextmanager
async def proxy(program: str, server: RunningServer, folder: Path) -> AsyncIterator[aiohttp.ClientSession]:
    port = free_port()
    file = folder / COMMANDS[program][0]
    file.write_text(configured(program, server, port, folder))
    process = await asyncio.create_subprocess_exec(
        program, *COMMANDS[program][1](file), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as client:
            await listening(process, port)
            yield client
    finally:
        if process.returncode is None:  # killed, as Caddy waits for its connections
            children = psutil.Process(process.pid).children()
            process.kill()
            for each in children:  # nginx's own, which would stay
                each.kill()
        await process.wait()


async def listening(process: asyncio.subprocess.Process, port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            assert process.returncode is None, "the proxy has ended: its configuration is wrong"
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return


@pytest.fixture(params=COMMANDS)
def program(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if shutil.which(name) is None:
        pytest.fail(f"{name} is not installed: `make programs` installs it, as root", pytrace=False)
    return name


async def test_tokens_pass_as_they_come_and_a_client_that_leaves_ends_its_request(
    serve: Serve, model_dir: ModelDirectory, tmp_path: Path, program: str
) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    async with proxy(program, server, tmp_path) as client, asyncio.timeout(60):
        answer = await client.post("/invocations", json={"inputs": "a", "stream": True})
        assert b"one" in await answer.content.readline()
        assert b"two" in await answer.content.readline()
        assert not script.closed.is_set()
        answer.close()
        await script.closed.wait()


async def test_large_bodies_and_statuses_pass(
    serve: Serve, model_dir: ModelDirectory, tmp_path: Path, program: str
) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    body = BytesIO(b'{"inputs": "' + b"x" * 5_000_000 + b'"}')
    async with proxy(program, server, tmp_path) as client:
        async with client.post("/invocations", data=body) as answer:
            assert answer.status == 200, await answer.text()
        async with client.post("/predictions/other", json={"inputs": "a"}) as answer:
            assert answer.status == 404
        async with client.get("/readiness") as answer:
            assert answer.status == 200


def test_the_page_has_a_configuration_for_each() -> None:
    assert {file for file, _ in COMMANDS.values()} == CONFIGURATIONS.keys()
