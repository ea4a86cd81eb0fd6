"""The example's model, served from S3 and from a hub by the torch engine, and model directories in S3."""

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_handlers.cli.plans import read_plans
from lmi_handlers.http.server import Server
from tests.archive_server import archive_server
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.core.remote.archives.packing import tar_of
from tests.core.remote.fake_hub import fake_hub
from tests.lmi_process import lmi, lmi_serve
from tests.s3_server import Body, Environ, S3Server, s3_server

HELLO = Path(__file__).parents[2] / "examples" / "hello"
QUESTION = {"inputs": "What is Deep Learning?"}
FORMATTER = """
from djl_python.output_formatter import output_formatter

@output_formatter
def shout(request_output):
    best = request_output.sequences[request_output.best_sequence_index]
    return best.get_next_token()[0].text.upper()
"""
HANDLE = """
from pathlib import Path
from djl_python import Output

def handle(inputs):
    folder = Path(inputs.get_property("model_id"))
    return None if inputs.is_empty() else Output().add_as_json(sorted(path.name for path in folder.iterdir()))
"""


def hello_files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in HELLO.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def s3_of_module() -> Iterator[S3Server]:
    with s3_server() as server:
        server.put("hello", hello_files())
        yield server


@pytest.fixture
def s3(s3_of_module: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    for name, value in s3_of_module.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    s3_of_module.reset()
    yield s3_of_module
    s3_of_module.reset()


async def answer_of(server: RunningServer) -> str:
    answer = await server.post("/invocations", {**QUESTION, "parameters": {"max_new_tokens": 30}})
    return str(answer.json()["generated_text"])


async def test_torch_from_s3(s3: S3Server, model_dir: ModelDirectory, serve: Serve) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=torch\noption.s3url=s3://models/hello/\n"})
    server = await serve(directory)
    assert await answer_of(server) == "Deep Learning is a really cool field."
    assert (Path(server.model.configs.model_id_or_path) / "config.json").is_file()
    assert (await server.get("/info")).json()["model_id"] == "s3://models/hello/"


async def test_torch_from_archives(
    model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, serve: Serve
) -> None:
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    weights = tar_of({f"hello/{name}": content for name, content in hello_files().items()})
    with archive_server() as web:
        url = web.put("weights.tar.gz", weights)
        directory = model_dir({"serving.properties": f"option.rolling_batch=torch\noption.model_id={url}\n"})
        assert await answer_of(await serve(directory)) == "Deep Learning is a really cool field."
        checked = lmi("check", directory)
        assert f"option.model_id: {url} is in {tmp_path}/cache/archives/weights-" in " ".join(checked.stdout.split())
    directory = model_dir(
        {"serving.properties": "option.rolling_batch=torch\noption.model_id=weights.tar.gz\n"}, "by_path"
    )
    (directory / "weights.tar.gz").write_bytes(weights)
    assert await answer_of(await serve(directory)) == "Deep Learning is a really cool field."


async def test_torch_from_the_hub(
    model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, serve: Serve
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    directory = model_dir({"serving.properties": "option.rolling_batch=torch\noption.model_id=org/tiny\n"})
    with fake_hub(hello_files()) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        server = await serve(directory)
        assert await answer_of(server) == "Deep Learning is a really cool field."
        files = {request.rpartition("/")[2] for request in hub.requests if request.startswith("GET /org/tiny/resolve/")}
        assert files == hello_files().keys()


async def test_ping_while_it_downloads(s3: S3Server, model_dir: ModelDirectory) -> None:
    begun, released = threading.Event(), threading.Event()

    def hold(environ: Environ, body: Body) -> Body:
        begun.set()
        released.wait(30)
        return body

    s3.fault = hold
    properties = "option.rolling_batch=torch\noption.model_id=s3://models/hello\n"
    dispatcher, plugins = dispatcher_of(model_dir({"serving.properties": properties}))
    server = Server(dispatcher, plugins.handlers, "127.0.0.1", 0)
    await server.listen()
    starting = asyncio.create_task(dispatcher.start())
    assert await asyncio.to_thread(begun.wait, 30)
    async with aiohttp.ClientSession(server.url) as client, client.get("/ping") as ping:
        assert ping.status == 503
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    released.set()
    await server.stop()


def dispatcher_of(directory: Path) -> tuple[Dispatcher, Plugins]:
    plugins = load_plugins()
    (plan,) = read_plans(directory, {}, plugins)
    return Dispatcher({plan.name: Model(plan, plugins.formatters)}), plugins


async def test_ctrl_c_ends_a_download_at_once(s3: S3Server) -> None:
    released = threading.Event()

    def hold(environ: Environ, body: Body) -> Body:
        released.wait(100)
        return body

    s3.fault = hold
    async with lmi_serve("s3://models/hello", "--port", 0) as server:
        await server.line_with("downloading s3://models/hello")
        server.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            assert await server.process.wait() == 0
    released.set()


async def test_model_directory_in_s3(s3: S3Server) -> None:
    url = s3.put("directories/shouting", {"serving.properties": SCRIPTED.encode(), "model.py": FORMATTER.encode()})
    unknown = lmi("check", url)
    assert unknown.returncode == 2
    assert unknown.stderr.startswith(f"lmi: {url} is not downloaded yet: `lmi serve {url}` downloads it to ")
    async with lmi_serve(url, "--port", 0) as server:
        line = await server.line_with("Ready")
        assert "Ready: shouting on http://" in line
    checked = lmi("check", url)
    assert "model shouting: " in checked.stdout
    assert "shout" in checked.stdout


def test_check_downloads_nothing(s3: S3Server, model_dir: ModelDirectory, tmp_path: Path) -> None:
    directory = model_dir({"serving.properties": "option.rolling_batch=torch\noption.model_id=s3://models/hello\n"})
    checked = lmi("check", directory)
    expected = f"  option.model_id: s3://models/hello will be downloaded to {tmp_path}/cache/s3/hello-"
    assert expected in checked.stdout
    assert not (tmp_path / "cache").exists()


async def test_handle_function_gets_the_folder(s3: S3Server, model_dir: ModelDirectory, serve: Serve) -> None:
    s3.put("parts", {"model.safetensors": b"", "pytorch_model.bin": b"", "config.json": b"{}"})
    properties = "option.model_id=s3://models/parts\n"
    server = await serve(model_dir({"serving.properties": properties, "model.py": HANDLE}))
    assert (await server.post("/invocations", {})).json() == ["config.json", "model.safetensors", "pytorch_model.bin"]


async def test_adapter_in_s3(s3: S3Server, model_dir: ModelDirectory, serve: Serve) -> None:
    url = s3.put("adapters/loud", {"model.py": FORMATTER.encode()})
    server = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.scripted_text=hello\n"}))
    path = "/models/model/adapters"
    assert (await server.post(path, {"name": "loud", "src": url})).status == 200
    answer = await server.post("/invocations", {"inputs": "x", "adapters": "loud"})
    assert answer.body == b"HELLO"
    refused = await server.post(path, {"name": "other", "src": "s3://models/nothing"})
    assert refused.status == 400
    assert refused.json()["error"] == (
        "`src` cannot be downloaded: s3://models/nothing: the folder contains no objects: check its name"
    )


async def test_folder_without_a_model(s3: S3Server, model_dir: ModelDirectory) -> None:
    url = s3.put("nothing-to-load", {"notes.txt": b""})
    directory = model_dir({"serving.properties": f"option.rolling_batch=torch\noption.model_id={url}\n"})
    dispatcher, _ = dispatcher_of(directory)
    with pytest.raises(ConfigurationError, match=r"^s3://models/nothing-to-load/: .*there is no config.json in"):
        await dispatcher.start()
    await dispatcher.stop()
