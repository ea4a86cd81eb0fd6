"""What the image, the pod and the service start, started without any of them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest

from tests.conftest import SCRIPTED, ModelDirectory
from tests.deployment.dockerfile import environment, health_command, last_stage
from tests.deployment.manifest import container, probes
from tests.deployment.test_files import BIN, IMAGES_PROGRAMS, unit
from tests.lmi_process import LmiProcess

WAITING = """
import asyncio, sys
from lmi import hookimpl
from lmi.testing import ScriptedBackend


class Waiting(ScriptedBackend):
    name = "waiting"

    async def start(self):
        print("the model is being loaded", file=sys.stderr, flush=True)
        await asyncio.to_thread(open, {pipe!r})


@hookimpl
def lmi_register_backends(register):
    register(Waiting)
"""

Start = Callable[..., AbstractAsyncContextManager[LmiProcess]]


def image_environment(model: Path, home: Path) -> dict[str, str]:
    """Return what a process of the image finds, with its folders put elsewhere."""
    found = {name: value.replace("/cache", str(home)) for name, value in environment().items()}
    path = found["PATH"].replace(IMAGES_PROGRAMS, str(BIN)).replace("${PATH}", os.defpath)
    sources = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    elsewhere = {"SAGEMAKER_BASE_DIR": str(model.parent), "SERVING_PORT": "0", "HOME": str(home)}
    return {**found, "PATH": path, **sources, **elsewhere}


@pytest.fixture
def start(tmp_path: Path) -> Start:
    @asynccontextmanager
    async def started(model: Path, command: list[str], *arguments: object) -> AsyncIterator[LmiProcess]:
        program, *given = [*command, *map(str, arguments)]
        assert program == "lmi"
        process = await asyncio.create_subprocess_exec(
            BIN / program,
            *given,
            env=image_environment(model, tmp_path),
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            yield LmiProcess(process)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    return started


@pytest.fixture
def model(model_dir: ModelDirectory) -> Path:
    return model_dir({"serving.properties": SCRIPTED}, "ml/model")


def entry_point() -> list[str]:
    return last_stage()["ENTRYPOINT"].command


def image() -> list[str]:
    return [*entry_point(), *last_stage()["CMD"].command]


def pod() -> list[str]:
    return [*entry_point(), *container()["args"]]


def local(line: str) -> str:
    """Return the address in a line of the log, from this host."""
    return next(word for word in line.split() if "http://" in word).replace("0.0.0.0", "127.0.0.1")


def port_of(process_id: int) -> int:
    """Return the port that a process listens on."""
    connections = psutil.Process(process_id).net_connections("inet")
    (listening,) = [each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN]
    return int(listening)


async def is_healthy(url: str, home: Path) -> bool:
    """Return what HEALTHCHECK says, inside the image."""
    variables = {"PATH": str(BIN), "HOME": str(home), "SAGEMAKER_BIND_TO_PORT": url.rpartition(":")[2]}
    _, *arguments = health_command()
    check = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=variables, stderr=asyncio.subprocess.DEVNULL
    )
    return await check.wait() == 0


@pytest.mark.parametrize("command", [image(), pod()], ids=["image", "pod"])
async def test_served_until_sigterm(start: Start, model: Path, command: list[str], tmp_path: Path) -> None:
    async with start(model, command) as lmi:
        line = await lmi.line_with("Ready: model on http://0.0.0.0:")
        url = local(line)
        async with aiohttp.ClientSession(url) as client:
            for path in probes().values():
                async with client.get(path) as response:
                    assert (path, response.status) == (path, 200)
            async with client.post("/invocations", json={"inputs": "hi"}) as response:
                assert await response.json() == {"generated_text": "Deep Learning is a really cool field."}
        assert await is_healthy(url, tmp_path)
        lmi.process.send_signal(getattr(signal, last_stage()["STOPSIGNAL"].text))
        await lmi.line_with("shutting down")
        assert await lmi.process.wait() == 0


async def test_alive_but_not_ready_while_the_model_is_loaded(start: Start, model: Path, tmp_path: Path) -> None:
    pipe, plugins = tmp_path / "pipe", tmp_path / "plugins"
    os.mkfifo(pipe)
    plugins.mkdir()
    (plugins / "waiting.py").write_text(WAITING.format(pipe=str(pipe)))
    (model / "serving.properties").write_text("option.rolling_batch=waiting\n")
    async with start(model, image(), "--plugins-dir", plugins) as lmi:
        await lmi.line_with("the model is being loaded")
        url = f"http://127.0.0.1:{port_of(lmi.process.pid)}"
        async with aiohttp.ClientSession(url) as client:
            for probe, path in probes().items():
                async with client.get(path) as response:
                    assert (probe, response.status) == (probe, 503 if probe == "readinessProbe" else 200)
            assert not await is_healthy(url, tmp_path)
            pipe.write_text("")  # which `open` waits for
            await lmi.line_with("Ready")
            async with client.get(probes()["readinessProbe"]) as response:
                assert response.status == 200


def test_the_units_command_is_one_of_lmi() -> None:
    program, command, *arguments = unit()["Service"]["ExecStart"].split()
    assert (program, command) == (f"{IMAGES_PROGRAMS}/lmi", "serve")
    assert arguments == ["/srv/model", "--host", "127.0.0.1", "--port", "8080", "--drain-seconds", "60"]
