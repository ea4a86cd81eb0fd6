"""The engine that a model directory plainly asks for, and its worker, which is started before plugins are loaded."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from lmi_core.plugins import early_workers
from lmi_core.plugins.early_engine import EarlyEngine, early_name, find_early_engine
from lmi_core.plugins.early_workers import end_unwanted, start_early, take_early
from lmi_core.workers.conversation import WorkerDied
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.prepared_workers import discard
from lmi_plugins.torch_engine.client import early
from tests.command_lines import command_line

ROOT = Path(__file__).parents[3]
TARGET = "tests.core.workers.worker_targets:echo_after_hello"
PREPARE = "tests.core.workers.worker_targets:prepare"
ENGINE = cast("EarlyEngine", SimpleNamespace(BACKEND="echo", TARGET=TARGET, PREPARE=PREPARE, ENVIRONMENT={}))
CONFIG = {"config.json": "{}"}
EARLY_START = """\
import json, sys
from lmi_handlers.cli.starting import start_event_loop
start_event_loop(["examples/hello"], ["option.rolling_batch=torch"])
imported = sorted({"aiohttp", "pydantic", "lmi_core.plugins.loading", "torch"} & sys.modules.keys())
from lmi_core.workers.prepared_workers import discard
from lmi_plugins.torch_engine.client.early import PREPARE
print(json.dumps(imported))
discard(PREPARE)  # which was begun
"""
FORMATTER = "@output_formatter\ndef shout(output): ..."


def write(folder: Path, files: Mapping[str, str]) -> str:
    for name, text in files.items():
        (folder / name).write_text(text)
    return str(folder)


@pytest.mark.parametrize(
    ("files", "options", "environment", "backend"),
    [
        (CONFIG, (), {}, "torch"),
        ({**CONFIG, "serving.properties": "option.rolling_batch : scheduler"}, (), {}, "torch"),
        ({**CONFIG, "serving.properties": "option.rolling_batch=vllm"}, (), {}, None),
        ({**CONFIG, "serving.properties": "option.rolling_batch=vllm"}, ["option.rolling_batch=torch"], {}, "torch"),
        ({**CONFIG, "serving.properties": ""}, (), {"OPTION_ROLLING_BATCH": "scripted"}, None),
        ({**CONFIG, "serving.properties": "option.rolling_batch=torch"}, (), {"OPTION_ROLLING_BATCH": "vllm"}, "torch"),
        ({**CONFIG, "serving.properties": "option.x=\\u12"}, (), {}, None),
        ({**CONFIG, "model.py": FORMATTER}, (), {}, "torch"),
        ({**CONFIG, "model.py": "def handle(inputs): ..."}, (), {}, None),
        ({"serving.properties": "option.rolling_batch=torch"}, (), {}, None),
    ],
)
def test_what_a_glance_at_a_directory_tells(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: Mapping[str, str],
    options: list[str],
    environment: Mapping[str, str],
    backend: str | None,
) -> None:
    monkeypatch.setattr(early, "visible_gpus", lambda: 0)
    directory = write(tmp_path, files)
    for models in ([directory], [f"name={directory}"]):
        engine = find_early_engine(models, options, environment)
        assert (None if engine is None else engine.BACKEND) == backend


def test_several_models_or_none_take_more_than_a_glance(tmp_path: Path) -> None:
    directory = write(tmp_path, CONFIG)
    assert (early_name(f"mine:v1={directory}"), early_name(directory)) == ("mine", tmp_path.name)
    assert find_early_engine([], [], {}) is None
    assert find_early_engine(["n" * 300], [], {}) is None
    assert find_early_engine([directory, directory], ["option.rolling_batch=torch"], {}) is None


@pytest.mark.parametrize(
    ("rolling_batch", "vllm", "gpus", "selected"),
    [
        ("auto", True, 1, False),
        ("auto", True, 0, True),
        ("disable", False, 1, True),
        ("torch", True, 1, True),
        ("hf-accelerate", True, 1, True),
        ("lmi-dist", False, 0, False),
    ],
)
def test_the_torch_engine_leaves_gpus_to_vllm(
    monkeypatch: pytest.MonkeyPatch, rolling_batch: str, vllm: bool, gpus: int, selected: bool
) -> None:
    monkeypatch.setattr(early, "find_spec", lambda name: object() if vllm else None)
    monkeypatch.setattr(early, "visible_gpus", lambda: gpus)
    assert early.is_selected(rolling_batch) is selected


@pytest.fixture
def _targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")


@pytest.fixture
def _beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_workers, "can_prepare", lambda: False)


async def processes(what: str) -> set[int]:
    """Return this process's children with an argument, once there are some: their command lines come a moment later."""
    async with asyncio.timeout(30):
        while not (found := {child.pid for child in psutil.Process().children() if what in command_line(child)}):
            await asyncio.sleep(0.01)
    return found


@pytest.mark.usefixtures("_targets", "_beside_a_gpu")
async def test_an_early_worker_is_taken_once() -> None:
    await start_early(ENGINE)
    await end_unwanted(["echo", "another"])
    worker = take_early(TARGET)
    assert isinstance(worker, LocalProcess)
    assert take_early(TARGET) is None
    async with asyncio.timeout(30):
        assert await worker.receive() == b"hello"
        worker.send(b"to and fro")
        assert await worker.receive() == b"to and fro"
    await worker.stop()


@pytest.mark.usefixtures("_targets")
async def test_where_workers_are_forked_their_imports_begin_early() -> None:
    await start_early(ENGINE)
    await end_unwanted(["echo", "another"])
    assert take_early(TARGET) is None
    servers = await processes(PREPARE)
    worker = LocalProcess("tests.core.workers.worker_targets:tell_preparation", prepare=PREPARE)
    async with asyncio.timeout(30):
        await worker.start()
        assert servers == {int(await worker.receive())}
    await worker.stop()
    discard(PREPARE)


@pytest.mark.usefixtures("_targets", "_beside_a_gpu")
async def test_a_worker_that_no_backend_wants_is_gone_at_once() -> None:
    await start_early(ENGINE)
    await gone_unless_wanted(TARGET)
    assert take_early(TARGET) is None


@pytest.mark.usefixtures("_targets")
async def test_imports_that_no_backend_wants_end_at_once() -> None:
    await start_early(ENGINE)
    await gone_unless_wanted(PREPARE)


async def gone_unless_wanted(what: str) -> None:
    children = await processes(what)
    async with asyncio.timeout(30):
        await end_unwanted(["torch"])
    assert not any(psutil.pid_exists(child) for child in children)


@pytest.mark.usefixtures("_targets", "_beside_a_gpu")
async def test_an_early_worker_that_dies_is_noticed_by_whoever_takes_it() -> None:
    engine = SimpleNamespace(
        BACKEND="torch", TARGET="tests.core.workers.worker_targets:exit_with_3", PREPARE="", ENVIRONMENT={}
    )
    await start_early(cast("EarlyEngine", engine))
    worker = take_early(engine.TARGET)
    assert worker is not None
    with pytest.raises(WorkerDied, match="exit code 3"):
        await worker.receive()
    await worker.stop()


def test_the_server_starts_it_before_it_imports_what_serves() -> None:
    found = subprocess.run([sys.executable, "-c", EARLY_START], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(found.stdout) == []
