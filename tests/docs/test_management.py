"""The commands of docs/reference/management.md, run one after the other, and the answers that it shows."""

import asyncio
import json
import re
import shutil
import sys
from pathlib import Path

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.docs.pages import page

TEXT = page("management.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8080"
COMMAND, ANSWERS = "sh", ("json", "text")
STEPS = re.findall(rf"```{COMMAND}\n(.*?)```\n\n```({'|'.join(ANSWERS)})\n(.*?)```", TEXT, re.DOTALL)
PROCESS = re.compile(r'"processId":\d+')
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def test_every_command_shows_its_answer() -> None:
    assert len(STEPS) == len(re.findall(rf"```{COMMAND}\n", TEXT)) > 5


async def test_commands(serve: Serve, model_dir: ModelDirectory, tmp_path: Path) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}, "first"))
    model_dir({"serving.properties": SCRIPTED}, "second")
    model_dir({"serving.properties": "option.rolling_batch=unknown\n"}, "wrong")
    curl = shutil.which("curl")
    assert curl is not None
    for command, language, shown in STEPS:
        said = await run(command.replace(ADDRESS, server.server.url).replace("=/models/", f"={tmp_path}/"))
        said = PROCESS.sub('"processId":4711', said)
        said = TIME.sub("2026-01-31T12:00:00.000Z", said.replace(str(tmp_path), "/models"))
        if language == "text":
            assert said == shown
        else:
            assert json.loads(said) == json.loads(shown), command
        await wait_registered(server)


async def run(command: str) -> str:
    """Return what a command of the page writes, with this Python."""
    command = command.replace("curl ", "curl --silent --show-error ").replace("python -c", f"{sys.executable} -c")
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert process.returncode == 0, command
    return said.decode()


async def wait_registered(server: RunningServer) -> None:
    """Wait until no model is being registered."""
    registry = server.dispatcher.registry
    for name in registry.names:
        for registered in registry.versions(name):
            if registered.loading is not None:
                await asyncio.wait([registered.loading])
