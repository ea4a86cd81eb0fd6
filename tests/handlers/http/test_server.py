"""The life of `lmi serve`, as a process."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import lmi_serve

ENDLESS = SCRIPTED + "option.scripted_delay=60\n"
HELD = """\
import time
from pathlib import Path

from djl_python import Output

def words():
    yield "one"
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.01)
    yield "two"

def handle(inputs):
    return None if inputs.is_empty() else Output().add_stream_content(words())
"""


@asynccontextmanager
async def streaming(url: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """A stream whose first line has been read."""
    body = {"inputs": "hi", "stream": True}
    async with aiohttp.ClientSession(url) as client, client.post("/invocations", json=body) as response:
        await response.content.readline()
        yield response


async def test_the_ready_line_has_a_command_that_works(model_dir: ModelDirectory) -> None:
    async with lmi_serve(model_dir({"serving.properties": SCRIPTED}), "--port", 0) as server:
        command = (await server.line_with("Ready")).partition("try: ")[2]
        curl = await asyncio.create_subprocess_shell(f"{command.strip()} --silent", stdout=asyncio.subprocess.PIPE)
        output, _ = await curl.communicate()
        assert output == b'{"generated_text": "Deep Learning is a really cool field."}'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_requests_finish(model_dir: ModelDirectory, number: signal.Signals) -> None:
    directory = model_dir({"model.py": HELD})
    async with lmi_serve(directory, "--port", 0) as server:
        url = await server.ready()
        async with streaming(url) as response, aiohttp.ClientSession(url) as client:
            server.process.send_signal(number)
            await server.line_with("shutting down: running requests (1) have ")
            async with client.get("/ping") as ping:
                assert ping.status == 503
            (directory / "go").touch()
            assert await response.read() == b'{"outputs":"two"}\n'
        assert await server.process.wait() == 0


async def test_a_second_signal_does_not_wait(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": ENDLESS})
    async with lmi_serve(directory, "--port", 0) as server, streaming(await server.ready()) as response:
        server.process.send_signal(signal.SIGTERM)
        await server.line_with("shutting down")
        server.process.send_signal(signal.SIGTERM)
        assert await server.process.wait() == 0
        assert (await response.read()).endswith(b'"error":"the server is shutting down"}\n')


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["--drain-seconds", 0.1], {}), ([], {"SERVING_DRAIN_TIMEOUT": "0.1"})],
    ids=["command line", "environment"],
)
async def test_drain_seconds_bound_the_wait(
    model_dir: ModelDirectory, arguments: list[object], environment: dict[str, str]
) -> None:
    directory = model_dir({"serving.properties": ENDLESS})
    serving = lmi_serve(directory, "--port", 0, *arguments, environment=environment)
    async with serving as server, streaming(await server.ready()) as response:
        server.process.send_signal(signal.SIGTERM)
        assert await server.process.wait() == 0
        assert (await response.read()).endswith(b'"error":"the server is shutting down"}\n')


async def test_a_server_whose_last_model_is_given_up_ends(model_dir: ModelDirectory) -> None:
    script = "import os\n\ndef handle(inputs):\n    return None if inputs.is_empty() else os._exit(3)\n"
    directory = model_dir({"serving.properties": "retry_threshold=0\n", "model.py": script})
    async with lmi_serve(directory, "--port", 0) as server:
        async with aiohttp.ClientSession(await server.ready()) as client, client.post("/invocations") as response:
            assert response.status == 500
        await server.line_with(
            "lmi: model model: the model function's worker died and is not restarted again, after 0 consecutive"
        )
        assert await server.process.wait() == 1


async def test_a_port_that_is_taken(model_dir: ModelDirectory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with lmi_serve(model_dir({"serving.properties": SCRIPTED}), "--port", port) as server:
            assert await server.line_with("lmi: ") == (
                f"lmi: cannot listen on 127.0.0.1:{port}: Address already in use. Choose with --host and --port\n"
            )
            assert await server.process.wait() == 2


async def test_a_ready_line_of_a_store_quotes_the_name(model_dir: ModelDirectory) -> None:
    store = model_dir({"serving.properties": SCRIPTED}, "store/a model").parent
    model_dir({"serving.properties": SCRIPTED}, "store/b")
    async with lmi_serve(store, "--port", 0) as server:
        assert "/predictions/a%20model -d " in await server.line_with("Ready")


async def test_what_is_no_http_is_logged_in_one_line(model_dir: ModelDirectory) -> None:
    async with lmi_serve(model_dir({"serving.properties": SCRIPTED}), "--port", 0) as server:
        port = int((await server.ready()).rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.0 400 ")
        writer.close()
        line = await server.line_with("Content-Length")
        assert "INFO    aiohttp.server: Error handling request from 127.0.0.1: 400, message: Invalid character" in line
        async with aiohttp.ClientSession() as client:
            await client.post(f"http://127.0.0.1:{port}/invocations", json={"inputs": "hi"})
        await server.line_with("/invocations 200 in ")
        assert "Traceback" not in "".join(server.log)
