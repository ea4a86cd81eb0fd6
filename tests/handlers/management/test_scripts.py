"""Registrations of models whose `model.py` is imported in the server's process, and does what it likes."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.management.asking import ask, describe, generated, register

ENDLESS = "import threading\nthreading.Event  # to be seen in the message\nwhile True:\n    pass\n"
FORMATTER = "def custom_output_formatter(output):\n    return b''\n"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}, "first"))


@pytest.fixture
def endless(model_dir: ModelDirectory) -> Path:
    return model_dir({"serving.properties": SCRIPTED, "model.py": ENDLESS}, "endless")


def scripts() -> set[str]:
    return {name for name in sys.modules if name.startswith("lmi_script_")}


async def test_an_import_that_never_ends(server: RunningServer, endless: Path) -> None:
    before = scripts()
    answer = await register(server, endless, **{"option.model_loading_timeout": 1})
    assert answer.status == 400
    told = (
        f"{endless / 'model.py'} cannot be loaded: its code did not end within option.model_loading_timeout=1 seconds"
    )
    assert answer.json()["error"].startswith(told)
    assert "in <module>" in answer.json()["error"]
    assert scripts() == before
    assert await generated(server, "/predictions/first")


async def test_removal_of_a_model_whose_import_never_ends(server: RunningServer, endless: Path) -> None:
    before = scripts()
    assert (await register(server, endless, synchronous=False)).status == 202
    async with asyncio.timeout(60):
        while scripts() == before:  # until the import has begun
            await asyncio.sleep(0.01)
        assert (await describe(server, "endless"))["state"] == "fetching"
        assert (await ask(server, "DELETE", "/models/endless")).status == 200
    assert scripts() == before
    assert (await ask(server, "GET", "/models/endless")).status == 404


@pytest.mark.parametrize(
    "files",
    [
        {"serving.properties": f"{SCRIPTED}option.output_formatter=unknown\n", "model.py": FORMATTER},
        {"serving.properties": SCRIPTED, "model.py": FORMATTER, "adapters/a/model.py": "1 / 0\n"},
        {"serving.properties": SCRIPTED, "model.py": f"{FORMATTER}import sys\nsys.exit('bye')\n"},
    ],
    ids=["formatter", "adapter", "exit"],
)
async def test_a_registration_that_fails_leaves_no_module(
    server: RunningServer, model_dir: ModelDirectory, files: dict[str, str]
) -> None:
    before, finders = scripts(), list(sys.meta_path)
    assert (await register(server, model_dir(files, "wrong"))).status == 400
    assert scripts() == before
    assert sys.meta_path == finders
