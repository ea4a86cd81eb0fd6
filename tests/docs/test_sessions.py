"""Pages that are a session: their files are saved, their commands typed, and what is printed is what they show."""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, page
from tests.docs.snippets import SESSIONS, Snippet, snippets_of
from tests.lmi_process import LmiProcess, lmi_serve, run_lmi
from tests.ports import free_port

SECONDS = 90
PROGRAMS = Path(sys.executable).parent
COMMAND = "lmi "
SERVE = f"{COMMAND}serve "
TIME = r"\s*\d+(?:\.\d+)? ms"


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command of a block with what it prints."""
    for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = step.partition("\n")
        yield command, printed


def pattern(shown: str) -> re.Pattern[str]:
    """Return what matches the shown output: `...` stands for anything, and times differ."""
    parts = (re.escape(part) for part in shown.strip().split("..."))
    # An escaped number of milliseconds, with the blanks before it.
    return re.compile(re.sub(r"(?:\\ )*\d+(?:\\\.\d+)?\\ ms", lambda _: TIME, ".*".join(parts)), re.DOTALL)


class Session:
    """A terminal in which a reader types, and one for the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.environment = os.environ | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
        self.server: LmiProcess | None = None
        self.servers = AsyncExitStack()

    def here(self, text: str) -> str:
        return text.replace("8080", str(self.port))

    def save(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(text))

    async def type(self, command: str, shown: str) -> None:
        printed = await (self.serve(command) if command.startswith(SERVE) else asyncio.to_thread(self.run, command))
        expected = pattern(self.here(shown))
        assert expected.fullmatch(printed.strip()), f"$ {command}\n{printed}\nis not as on the page:\n{shown}"

    def run(self, command: str) -> str:
        if command.startswith(COMMAND) and "|" not in command:  # nothing for a shell
            done = run_lmi(shlex.split(command.removeprefix(COMMAND)), self.environment)
        else:
            shell = ["bash", "-c", self.here(command)]
            done = subprocess.run(shell, env=self.environment, capture_output=True, text=True, timeout=SECONDS)
        return done.stdout + done.stderr

    async def serve(self, command: str) -> str:
        """Start the server in place of the one before, and return its log until it is ready."""
        await self.stop()
        arguments = command.removeprefix(SERVE).split()
        self.server = await self.servers.enter_async_context(lmi_serve(*arguments, "--port", self.port))
        await self.server.ready()
        return "".join(self.server.log)

    async def stop(self) -> None:
        if self.server is not None:
            self.server.process.terminate()
            assert await self.server.process.wait() == 0
            self.server = None


async def take(opened: Session, snippet: Snippet) -> None:
    if snippet.file:
        opened.save(snippet.file, snippet.text)
    elif snippet.language == "console":
        for command, shown in steps(snippet.text):
            await opened.type(command, shown)
    else:
        raise AssertionError(f"{snippet.name}: neither a file nor commands")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SESSIONS)
async def test_session(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shutil.which("curl")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    opened = Session(tmp_path)
    async with opened.servers:
        for snippet in snippets_of(page(name)):
            if not snippet.reason_not_to_run:
                await take(opened, snippet)
        await opened.stop()


@pytest.mark.parametrize("name", SESSIONS)
def test_every_command_shows_something(name: str) -> None:
    blocks = [snippet for snippet in snippets_of(page(name)) if snippet.language == "console"]
    assert sum(len(list(steps(block.text))) for block in blocks) >= 10
    assert all(shown.strip() not in ("", "...") for block in blocks for _, shown in steps(block.text))
