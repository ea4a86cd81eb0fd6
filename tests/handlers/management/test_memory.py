"""Memory that is planned before models are loaded, at the start too, and that runs out while one is loaded."""

import re
from pathlib import Path

import pytest

from lmi_core.errors import OutOfMemory
from lmi_core.errors.sizes import readable
from lmi_core.plugins.loading import load_plugins
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_handlers.cli.plans import read_plans
from lmi_plugins.backends.scripted import ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.management.asking import ask, generated, register
from tests.lmi_process import lmi_serve

HELLO = Path(__file__).parents[3] / "examples" / "hello"
HUGE = 10**8  # MiB

RAISES = """\
raise MemoryError("the weights are too large")

def handle(inputs):
    return None
"""
RAISES_WHEN_CALLED = """\
class OutOfMemoryError(RuntimeError):
    "As torch has it."

def handle(inputs):
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
"""
KILLED = """\
import os, signal

def handle(inputs):
    os.kill(os.getpid(), signal.SIGKILL)
"""


class LargeBackend(ScriptedBackend):
    """A backend of a plugin that finds no memory."""

    name = "large"

    async def start(self) -> None:
        raise MemoryError("no room for 7 tensors")


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}, "first"))


async def refusal(server: RunningServer, directory: Path, **query: object) -> str:
    """Return why there is no memory for a model, of which nothing is left."""
    answer = await register(server, directory, **query)
    assert (answer.status, answer.json()["code"]) == (507, 507), answer.body
    assert (await ask(server, "GET", f"/models/{directory.name}")).status == 404
    assert await generated(server, "/predictions/first") != ""
    return str(answer.json()["error"])


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (RAISES, "MemoryError: the weights are too large"),
        (RAISES_WHEN_CALLED, "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        (KILLED, "exit code -9, as if killed by the system for lack of memory"),
    ],
)
async def test_model_function_without_memory(
    server: RunningServer, model_dir: ModelDirectory, script: str, told: str
) -> None:
    assert told in await refusal(server, model_dir({"model.py": script}, "function"))


async def test_backend_of_a_plugin_without_memory(server: RunningServer, model_dir: ModelDirectory) -> None:
    server.dispatcher.registry.reader._plugins.backends.register(LargeBackend)  # type: ignore[union-attr]
    directory = model_dir({"serving.properties": "option.rolling_batch=large\n"}, "large_model")
    assert "did not start: MemoryError: no room for 7 tensors" in await refusal(server, directory)


@pytest.mark.torch
async def test_torch_engine_without_memory(server: RunningServer) -> None:
    options = {"option.kv_cache_memory": 10**16, "option.max_rolling_batch_size": 10**10}
    told = await refusal(server, HELLO, **{"option.rolling_batch": "torch", **options})
    assert "the model cannot be loaded: " in told


async def test_models_of_the_start_are_planned(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": f"{SCRIPTED}required_memory_mb={HUGE}\n"}, "first")
    with pytest.raises(OutOfMemory, match=r"model first needs [0-9]+ TB \(required_memory_mb\), but .* are free"):
        await serve(directory)


@pytest.mark.slow
async def test_start_without_memory_ends_with_a_line(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": f"{SCRIPTED}required_memory_mb={HUGE}\n"}, "first")
    async with lmi_serve(directory, "--port", 0) as process:
        line = await process.line_with("lmi: ")
        assert re.match(r"lmi: model first needs \d+ TB \(required_memory_mb\), but .* are free in main memory: ", line)
        assert await process.process.wait() == 2


async def test_weights_are_what_a_model_needs_at_least(server: RunningServer) -> None:
    weights = (HELLO / "model.safetensors").stat().st_size
    server.dispatcher.registry.memory_planner.free = lambda need: weights - 1
    told = await refusal(server, HELLO, **{"option.rolling_batch": "torch"})
    size = readable(weights)
    assert told.startswith(f"model hello needs {size} (the size of its weights), but ")
    assert told.endswith("unload another model, set evict_models=true, or set required_memory_mb if it needs less")


async def test_models_of_the_start_make_room_for_each_other(model_dir: ModelDirectory) -> None:
    files = {f"{name}/serving.properties": f"{SCRIPTED}required_memory_mb=1024\n" for name in "abc"}
    plugins = load_plugins()
    plans = read_plans(model_dir(files, "store"), {}, plugins)
    dispatcher = Dispatcher({plan.name: Model(plan, plugins.formatters) for plan in plans})
    models, registry = list(dispatcher.all_models()), dispatcher.registry
    registry.memory_planner.evicts = True
    registry.memory_planner.free = lambda need: 2 * need.size - need.size * sum(model.ready for model in models)
    await dispatcher.start()
    assert sorted((model.ready, model.idle) for model in models) == [(False, True), (True, False), (True, False)]
    (idle,) = [model for model in models if model.idle]
    await dispatcher.wake(idle)
    assert sorted(model.ready for model in models) == [False, True, True]
    assert idle.ready
    await dispatcher.stop()
