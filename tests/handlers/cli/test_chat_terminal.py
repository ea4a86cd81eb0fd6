"""`lmi chat` in a terminal."""

import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.history import InMemoryHistory

from lmi_core.logs.logs import CLEAR
from lmi_handlers.cli.chat_terminal import message_prompt
from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import LMI

IN_TERMINAL = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
READY = "\x1b[?2004h"  # asks the terminal to mark pasted text, once keys are read
ENTER, ALT_ENTER, CTRL_C, UP = "\r", "\x1b\r", "\x03", "\x1b[A"
SAYS = SCRIPTED + "option.scripted_text=It is **warm**.\n"


class Terminal:
    """A terminal in which `lmi chat` runs, with its keyboard and what it shows."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._shown = b""

    def type(self, *keys: str) -> None:
        os.write(self._descriptor, "".join(keys).encode())

    def until(self, text: str) -> str:
        """Return what is shown after the previous such text, until this one."""
        while text.encode() not in self._shown:
            self._shown += os.read(self._descriptor, 4096)
        before, _, self._shown = self._shown.partition(text.encode())
        return before.decode()

    def send(self, *keys: str) -> str:
        """Send a message or command, and return what is shown until the next one can be typed."""
        self.type(*keys, ENTER)
        return self.until(READY)


@contextmanager
def chat(directory: Path, state: Path) -> Iterator[Terminal]:
    """Run `lmi chat` in a terminal until Ctrl-C in an empty message."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    environment = {**os.environ, "TERM": "xterm", "XDG_STATE_HOME": str(state), "PROMPT_TOOLKIT_NO_CPR": "1"}
    command = [sys.executable, "-c", IN_TERMINAL, str(LMI), "chat", str(directory)]
    with subprocess.Popen(command, stdin=theirs, env=environment) as process:
        os.close(theirs)
        try:
            terminal = Terminal(ours)
            assert CLEAR not in terminal.until(READY).partition(f"{directory}: /help")[2]
            yield terminal
            terminal.type(CTRL_C)
            assert process.wait(60) == 0
        finally:
            process.kill()
            os.close(ours)


def messages(file: Path) -> list[str]:
    return [message["content"] for message in json.loads(file.read_text())["messages"] if message["role"] == "user"]


def test_messages_of_several_lines(model_dir: ModelDirectory, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    with chat(model_dir({"serving.properties": SAYS}), tmp_path) as terminal:
        terminal.send("\x1b[200~pasted\nin\n\nlines\n\x1b[201~")
        terminal.send("typed", ALT_ENTER, "in\\", ENTER, "lines")
        terminal.type("half a mess", CTRL_C)
        terminal.send("another")
        assert "starts a new line" in terminal.send("/help")
        terminal.send(f"/save {file}")
    assert messages(file) == ["pasted\nin\n\nlines", "typed\nin\nlines", "another"]


def test_messages_of_earlier_chats(model_dir: ModelDirectory, tmp_path: Path) -> None:
    directory, file = model_dir({"serving.properties": SAYS}), tmp_path / "chat.json"
    with chat(directory, tmp_path) as terminal:
        terminal.send("two", ALT_ENTER, "lines")
    assert (tmp_path / "lmi" / "chat_history").stat().st_mode & 0o777 == 0o600
    with chat(directory, tmp_path) as terminal:
        terminal.send(UP)
        terminal.send(f"/save {file}")
    assert messages(file) == ["two\nlines"]


def test_a_history_is_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "lmi" / "chat_history"
    file.parent.mkdir()
    file.touch(0o644)
    message_prompt({"XDG_STATE_HOME": str(tmp_path)})
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_user_without_a_home_has_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)  # of nobody who is known
    assert isinstance(message_prompt({}).history, InMemoryHistory)


def test_answer_in_markdown(model_dir: ModelDirectory, tmp_path: Path) -> None:
    no_folder = tmp_path / "file"  # without a history
    no_folder.touch()
    code = "".join(f"line {number:02}\\n" for number in range(40))
    text = f"# Title\\n\\nIt is **warm**\\nhere.\\n\\n- one\\n\\n```\\n{code}```\\n\\nEnd."
    with chat(model_dir({"serving.properties": f"{SCRIPTED}option.scripted_text={text}\n"}), no_folder) as terminal:
        shown = terminal.send("Hello")
    assert "It is \x1b[1mwarm\x1b[0m" in shown
    assert not any(mark in shown for mark in ("# Title", "**", "```"))
    ends = [
        shown.rfind(text) for text in ("Title", "here.", " • ", *(f"line {number:02}" for number in range(40)), "End")
    ]
    assert ends == sorted(ends)
    assert -1 not in ends


def test_ctrl_c_stops_the_answer_and_not_the_chat(model_dir: ModelDirectory, tmp_path: Path) -> None:
    properties = f"{SCRIPTED}option.scripted_text=one two {'three ' * 500}\noption.scripted_delay=0.05\n"
    with chat(model_dir({"serving.properties": properties}), tmp_path) as terminal:
        terminal.type("Hello", ENTER)
        terminal.until("one two")
        terminal.type("unseen", CTRL_C)
        shown = terminal.until(READY)
        assert " ..." in shown
        assert "unseen" not in shown
        assert "^C" not in shown
        terminal.send("/set max_tokens 1")
        assert "1 tokens" in terminal.send("/retry")
