"""Pages that are a session: their files are saved, their commands typed, and what is printed is what they show."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, page
from tests.docs.snippets import SESSIONS, Snippet, snippets_of
from tests.ports import free_port

SECONDS = 90
PROGRAMS = Path(sys.executable).parent
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
        self.environment = os.environ | {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
        self.server: subprocess.Popen[str] | None = None
        self.reader = threading.Thread()

    def here(self, text: str) -> str:
        return text.replace("8080", str(self.port))

    def save(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(text))

    def type(self, command: str, shown: str) -> None:
        printed = self.serve(command) if command.startswith("lmi serve") else self.run(command)
        expected = pattern(self.here(shown))
        assert expected.fullmatch(printed.strip()), f"$ {command}\n{printed}\nis not as on the page:\n{shown}"

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", self.here(command)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        return done.stdout + done.stderr

    def serve(self, command: str) -> str:
        """Start the server in place of the one before, and return its log until it is ready."""
        self.stop()
        self.server = subprocess.Popen(
            [*command.split(), "--port", str(self.port)],
            cwd=self.folder,
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
            executable=PROGRAMS / "lmi",
        )
        assert self.server.stderr is not None
        log = []
        for line in self.server.stderr:
            log.append(line)
            if "Ready" in line:
                break
        self.reader = threading.Thread(target=self.server.stderr.read)  # as a full pipe would block the server
        self.reader.start()
        return "".join(log)

    def stop(self) -> None:
        if self.server is not None:
            self.server.terminate()
            assert self.ended(self.server) == 0
            self.server = None

    def ended(self, server: subprocess.Popen[str]) -> int:
        status = server.wait(SECONDS)
        if self.reader.ident is not None:
            self.reader.join()
        assert server.stderr is not None
        server.stderr.close()
        return status


@contextmanager
def session(folder: Path) -> Iterator[Session]:
    (folder / "examples").symlink_to(ROOT / "examples")
    opened = Session(folder)
    try:
        yield opened
    finally:
        if opened.server is not None:
            opened.server.kill()
            opened.ended(opened.server)


def take(opened: Session, snippet: Snippet) -> None:
    if snippet.file:
        opened.save(snippet.file, snippet.text)
    elif snippet.language == "console":
        for command, shown in steps(snippet.text):
            opened.type(command, shown)
    else:
        raise AssertionError(f"{snippet.name}: neither a file nor commands")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SESSIONS)
def test_session(name: str, tmp_path: Path) -> None:
    assert shutil.which("curl")
    with session(tmp_path) as opened:
        for snippet in snippets_of(page(name)):
            if not snippet.reason_not_to_run:
                take(opened, snippet)
        opened.stop()


@pytest.mark.parametrize("name", SESSIONS)
def test_every_command_shows_something(name: str) -> None:
    blocks = [snippet for snippet in snippets_of(page(name)) if snippet.language == "console"]
    assert sum(len(list(steps(block.text))) for block in blocks) >= 10
    assert all(shown.strip() not in ("", "...") for block in blocks for _, shown in steps(block.text))
