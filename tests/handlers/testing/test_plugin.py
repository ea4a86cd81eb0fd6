"""The pytest plugin as authors use it: by itself, with pytest-asyncio in each of its modes, and without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLAIN = """
from pathlib import Path
from lmi.testing import Golden, ModelDirectory, PlainServe, Script

SCRIPTED = {"serving.properties": "option.rolling_batch=scripted"}


def test_whole(serve: PlainServe, model_dir: ModelDirectory) -> None:
    server = serve(model_dir(SCRIPTED))
    server.scripted.enqueue(Script("one two"))
    assert server.post("/invocations", {"inputs": "Count."}).json() == {"generated_text": "one two"}
    assert server.scripted.history[0].prompt == "Count."
    assert server.get("/ping").status == 200
    assert server.url.startswith("http://127.0.0.1:")


def test_two_servers(serve: PlainServe, model_dir: ModelDirectory) -> None:
    names = ["one", "two"]
    assert [serve(model_dir(SCRIPTED, name=name)).model.name for name in names] == names


def test_pieces(serve: PlainServe, model_dir: ModelDirectory) -> None:
    server = serve(model_dir(SCRIPTED))
    held = Script("one two", hold=True)
    server.scripted.enqueue(held)
    pieces = server.pieces("/invocations", {"inputs": "Count.", "stream": True})
    assert b"one" in next(pieces)
    pieces.close()


def test_plugin_in_a_file(serve: PlainServe, model_dir: ModelDirectory, tmp_path: Path) -> None:
    plugin = tmp_path / "loud.py"
    plugin.write_text(
        "from lmi import hookimpl, output_formatter\\n"
        "@output_formatter\\n"
        "def loud(output): return output.delta.upper()\\n"
        "@hookimpl\\n"
        "def lmi_register_formatters(register): register(loud)\\n"
    )
    directory = model_dir({"serving.properties": "option.rolling_batch=scripted\\noption.output_formatter=loud"})
    server = serve(directory, plugins=[plugin])
    server.scripted.enqueue(Script("one two"))
    assert server.post("/invocations", {"inputs": "Count."}).body == b"ONE TWO"
"""
ASYNCHRONOUS = """
import pytest
import pytest_asyncio
from lmi.testing import ModelDirectory, RunningServer, Script, Serve

SCRIPTED = {"serving.properties": "option.rolling_batch=scripted"}


async def test_without_a_mark(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir(SCRIPTED))
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    async with server.client.post("/invocations", json={"inputs": "Count.", "stream": True}):
        await script.started.wait()
    await script.closed.wait()


@pytest.mark.asyncio
async def test_with_a_mark(serve: Serve, model_dir: ModelDirectory) -> None:
    assert (await (await serve(model_dir(SCRIPTED))).get("/ping")).status == 200


@pytest_asyncio.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir(SCRIPTED))


async def test_through_another_fixture(server: RunningServer) -> None:
    assert (await server.get("/ping")).status == 200


def test_plain_beside_it(serve: Serve, model_dir: ModelDirectory) -> None:
    assert serve(model_dir(SCRIPTED)).get("/ping").status == 200
"""
# As if pytest-asyncio were not installed.
NO_ASYNCIO = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "pytest_asyncio":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
"""
# The entry point does what `-p` does here, under the same name: `tests/packaging` has it from an installed wheel. Of
# the other plugins, whose imports would take most of the time, pytest-asyncio alone is loaded.
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "lmi_handlers.testing"]
RUN = f"import pytest; sys.exit(pytest.main([*{OPTIONS}, *sys.argv[1:]]))"
HEAVY = ("aiohttp", "lmi_core.backend", "pydantic", "torch")


def run(
    folder: Path, *arguments: str, before: str = "import sys; ", asynchronous: bool = False
) -> subprocess.CompletedProcess[str]:
    options = ("-p", "asyncio") if asynchronous else ("-p", "no:asyncio")
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", before + RUN, *options, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


def test_plain_tests_without_pytest_asyncio(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(PLAIN)
    result = run(tmp_path, before=NO_ASYNCIO)
    assert "4 passed" in result.stdout, result.stdout + result.stderr


def test_asynchronous_tests_without_pytest_asyncio_say_so(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import asyncio\n"
        "def test_it(serve, tmp_path):\n"
        "    async def main(): await serve(tmp_path)\n"
        "    asyncio.run(main())\n"
    )
    result = run(tmp_path, before=NO_ASYNCIO)
    assert "`await serve(...)` needs pytest-asyncio; tests without async do not" in result.stdout


def test_asynchronous_tests(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(ASYNCHRONOUS)
    options = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", "--strict-markers")
    result = run(tmp_path, *options, asynchronous=True)
    assert "4 passed" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("name", ["lmi_handlers.testing", "lmi.testing"])
def test_named_by_a_test_that_has_it_already(name: str, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(f"pytest_plugins = [{name!r}]\n{PLAIN}")
    assert "4 passed" in run(tmp_path).stdout


def test_the_start_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        f"import sys\ndef test_it(): assert not {{*{HEAVY}}} & set(sys.modules)\ndef test_plain(model_dir, golden): ..."
    )
    result = run(tmp_path)
    assert "2 passed" in result.stdout, result.stdout
