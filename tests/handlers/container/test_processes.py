"""`lmi serve` and `lmi check` as a container runs them."""

import asyncio
import signal
import threading
from pathlib import Path

import aiohttp
import pytest

from lmi_core.remote import locks
from tests.archive_server import archive_server, hold_until
from tests.conftest import SCRIPTED, ModelDirectory
from tests.core.remote.archives.packing import tar_of, zip_of
from tests.lmi_process import lmi, lmi_serve

ANSWER = {"generated_text": "Deep Learning is a really cool field."}
HANDLER = "from djl_python import Output\n\ndef handle(inputs):\n    return Output().add('mine')\n"


async def test_serve_without_arguments(
    model_dir: ModelDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_dir({"serving.properties": SCRIPTED}, "ml/model")
    for name, value in {"SAGEMAKER_BASE_DIR": str(tmp_path / "ml"), "SERVING_PORT": "0", "SERVING_OPTS": "-Dx"}.items():
        monkeypatch.setenv(name, value)
    async with lmi_serve() as server:
        assert "environment SERVING_OPTS has no effect: this server has no JVM; " in await server.line_with("WARNING")
        line = await server.line_with("Ready: model on http://0.0.0.0:")
        url = line.partition(" on ")[2].split()[0].replace("0.0.0.0", "127.0.0.1")
        async with aiohttp.ClientSession(url) as client:
            async with client.post("/invocations", json={"inputs": "hi"}) as response:
                assert await response.json() == ANSWER
            async with client.get("/v1/models") as response:
                assert [each["id"] for each in (await response.json())["data"]] == ["model"]


async def test_several_models_by_name_and_version(model_dir: ModelDirectory) -> None:
    scripted = model_dir({"serving.properties": SCRIPTED}, "a model")
    handled = model_dir({"model.py": HANDLER}, "handled")
    items = f"[x:v1:Python:*]=file://{scripted.parent}/a%20model,y:2={handled}"
    statuses = {
        "/predictions/x": 200,
        "/predictions/x/v1": 200,
        "/predictions/x/v2": 404,
        "/predictions/y/2": 200,
        "/predictions/y/1": 404,
        "/predictions/z": 200,
        "/predictions/z/any": 200,
        "/predictions/a%20model": 404,
    }
    async with (
        lmi_serve(f"z={scripted}", "-m", items, "--port", 0) as server,
        aiohttp.ClientSession(await server.ready()) as client,
    ):
        for path, status in statuses.items():
            async with client.post(path, json={"inputs": "hi"}) as response:
                assert (path, response.status) == (path, status)
                body = await response.text()
            if path == "/predictions/y/1":
                assert '"model `y` is only served in version 2. Given: 1"' in body


def test_check_shows_everything_at_once(
    model_dir: ModelDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model_dir({"serving.properties": SCRIPTED + "batch_size=2\n"}, "store/a")
    file = "config.properties"
    (tmp_path / file).write_text(
        "inference_address=http://0.0.0.0:80\njob_queue_size=7\nbatch_size=3\nuse_native_io=true\n"
    )
    environment = {"SERVING_JOB_QUEUE_SIZE": "8", "SAGEMAKER_REGION": "eu", "DJL_OFLINE": "1"}
    result = lmi("check", "-f", file, "-s", "store", **environment)
    assert result.returncode == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    for row in (
        ["host", "0.0.0.0", f"{file}:1", "honoured"],
        ["port", "80", f"{file}:1", "honoured"],
        ["model", "a=store/a", "-s", "honoured"],
        ["use_native_io", "true", f"{file}:4", "ignored"],
        ["job_queue_size", "8", "environment", "SERVING_JOB_QUEUE_SIZE"],
        ["batch_size", "2", "serving.properties:2"],
    ):
        assert row in rows
    note = "SAGEMAKER_REGION eu environment SAGEMAKER_REGION informational: it names the region of the container"
    assert note in map(" ".join, rows)
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert "warning: environment DJL_OFLINE is not known. Did you mean `DJL_OFFLINE`?" in lines
    assert f"warning: {file}:4: use_native_io has no effect: it tunes Netty" in result.stdout
    assert f"note: anyone who can reach 0.0.0.0 ({file}:1) can generate without a key" in result.stdout


def test_keys_of_the_file_reach_the_models(model_dir: ModelDirectory, tmp_path: Path) -> None:
    directory = model_dir({"serving.properties": SCRIPTED})
    file = tmp_path / "config.properties"
    file.write_text("throttle_error_http_code=429\n")
    rows = [line.split() for line in lmi("check", directory, "-f", file).stdout.splitlines()]
    assert ["throttle_error_http_code", "429", f"{file}:1"] in rows
    file.write_text("job_queue_size=many\n")
    result = lmi("check", directory, "-f", file)
    message = f"lmi: {file}:1: job_queue_size must be an integer greater than 0. Given: many\n"
    assert (result.returncode, result.stderr) == (2, message)


def test_every_model_that_is_wrong_is_told(model_dir: ModelDirectory) -> None:
    first = model_dir({"serving.properties": SCRIPTED + "batch_size=no\n"}, "first")
    second = model_dir({"serving.properties": SCRIPTED + "option.dtipe=a\njob_queue_size=no\n"}, "second")
    result = lmi("check", first, second)
    assert (result.returncode, result.stderr.splitlines()) == (
        2,
        [
            "lmi: model first: serving.properties:2: batch_size must be an integer greater than 0. Given: no",
            "model second: serving.properties:3: job_queue_size must be an integer greater than 0. Given: no",
            "warning: serving.properties:2: option.dtipe is not a known key and is ignored; did you mean option.dtype?",
        ],
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check"], "lmi: there is no model to serve. Give a model directory (lmi serve DIR)"),
        (["serve"], "lmi: there is no model to serve. Give a model directory (lmi serve DIR)"),
        (["serve", "-m", "x=gs://bucket/model"], "lmi: -m: gs://bucket/model: models cannot be fetched from gs://"),
        (["check", "gs://bucket/model"], "lmi: gs://bucket/model: models cannot be fetched from gs://"),
        (["serve", "-m", ""], "lmi: -m: a model must be given as NAME=DIR. Given: an empty string"),
        (["check", " "], "lmi: a model must be given as NAME=DIR. Given: an empty string"),
        (["serve", "-w", "workflow.json"], "workflows are not supported"),
        (["check", "-i", "ai.djl.pytorch:pytorch-engine"], "it installs engines for Java"),
    ],
)
def test_errors(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = lmi(*arguments, SAGEMAKER_BASE_DIR=str(tmp_path / "nowhere"), COLUMNS="200")
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_h_is_help() -> None:
    assert lmi("serve", "-h").stdout == lmi("serve", "--help").stdout != ""


async def test_archive_of_a_web_server(tmp_path: Path) -> None:
    cache = {"LMI_CACHE": str(tmp_path / "cache"), "NO_PROXY": "127.0.0.1"}
    with archive_server() as web:
        url = web.put("mine.tar.gz", tar_of({"top/serving.properties": SCRIPTED.encode()}))
        early = lmi("check", url, LMI_CACHE=cache["LMI_CACHE"])
        assert early.returncode == 2
        assert early.stderr.startswith(f"lmi: {url} is not downloaded yet: `lmi serve {url}` downloads it to ")
        async with lmi_serve("-m", f"x:v1::*={url}", url, "--port", 0, environment=cache) as server:
            await server.line_with(f"downloading {url} to {tmp_path}")
            await server.line_with(f"unpacking {url} to {tmp_path}")
            async with aiohttp.ClientSession(await server.ready()) as client:
                for path in ("/predictions/x/v1", "/predictions/mine"):
                    async with client.post(path, json={"inputs": "hi"}) as response:
                        assert await response.json() == ANSWER
        assert "model mine: " in lmi("check", url, LMI_CACHE=cache["LMI_CACHE"]).stdout


async def test_an_archive_of_the_start_is_locked_as_long_as_its_models_are_there(tmp_path: Path) -> None:
    store, cache = tmp_path / "store.zip", tmp_path / "cache"
    store.write_bytes(zip_of({f"{name}/serving.properties": SCRIPTED.encode() for name in ("one", "two")}))
    async with (
        lmi_serve(store, "--port", 0, environment={"LMI_CACHE": str(cache)}) as server,
        aiohttp.ClientSession(await server.ready()) as client,
    ):
        (lock,) = (cache / "archives").glob("*/*.lock")
        for name, is_free in (("one", False), ("two", True)):
            with locks.try_exclusive(lock) as free:
                assert not free
            async with client.delete(f"/models/{name}") as response:
                assert response.status == 200
            with locks.try_exclusive(lock) as free:
                assert free is is_free


async def test_signal_ends_a_download_at_once(tmp_path: Path) -> None:
    released, begun = threading.Event(), threading.Event()
    with archive_server() as web:
        url = web.put("mine.zip", bytes(10_000))
        web.fault = hold_until(released, begun, 100)
        async with lmi_serve(url, environment={"LMI_CACHE": str(tmp_path), "NO_PROXY": "127.0.0.1"}) as server:
            await asyncio.to_thread(begun.wait, 60)
            server.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert await server.process.wait() == 0
        released.set()
