import asyncio
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lmi_core.logs import progress_display as display
from lmi_core.logs.loading_progress import LoadingProgress
from lmi_core.logs.logs import CLEAR, FIELDS, configure_logging, error_stream_of_children, terminal_thread
from lmi_core.logs.progress_display import bar_line, log_lines, show_on_terminal, show_progress
from tests.virtual_time import in_virtual_time


class Terminal:
    """What was written to a terminal, read until it has a text."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.text = ""

    def until(self, text: str) -> str:
        while text not in self.text:
            self.text += os.read(self._descriptor, 4096).decode()
        return self.text


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A terminal as standard error, and the log configured for it at the level INFO."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    for handler in handlers:
        root.removeHandler(handler)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        configure_logging("info")
        yield Terminal(ours)
        for handler in list(root.handlers):
            root.removeHandler(handler)
            handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    os.close(ours)


def progress(what: str, done: int | None = None, total: int | None = None) -> LoadingProgress:
    made = LoadingProgress(lambda: 0.0)
    made.report(what, done, total)
    return made


def test_a_bar_for_each_model() -> None:
    loading = {"one": progress("reading weights", 500, 1000), "two": progress("starting"), "three": LoadingProgress()}
    assert bar_line(loading, 200) == (
        "one: ━━━━━━━━━━────────── 50% reading weights, 500 B of 1 kB, 0 s | two: starting, 0 s"
    )
    assert bar_line(loading, 8) == "one: ━━━"
    assert "100% reading weights, 1 kB of 1 kB" in bar_line({"m": progress("reading weights", 1000, 1000)}, 200)


async def test_the_bar_stays_below_the_log(terminal: Terminal) -> None:
    loading = {"m": progress("reading weights", 250, 1000)}
    with show_progress(loading):
        terminal.until("25% reading weights, 250 B of 1 kB, 0 s")
        logging.getLogger("somebody").info("meanwhile")
        text = terminal.until(f"meanwhile\r\n{bar_line(loading, 200)}")
        assert f"{CLEAR}20" in text  # the bar is removed before the line, which begins with the year
        loading["m"].report("reading weights", 1000, 1000)
        terminal.until("100% reading weights, 1 kB of 1 kB, 0 s")
    logging.getLogger("somebody").info("afterwards")
    terminal.until("afterwards\r\n")
    assert "━" not in terminal.text.rpartition(CLEAR)[2]


async def test_the_bar_is_shown_at_the_level_warning(terminal: Terminal) -> None:
    logging.getLogger().setLevel(logging.WARNING)
    with show_progress({"m": progress("starting")}):
        logging.getLogger("somebody").warning("something")
        terminal.until("something\r\nm: starting, 0 s")


def test_lines_of_child_processes_go_above_the_bar(terminal: Terminal) -> None:
    with show_on_terminal({"m": progress("starting")}):
        terminal.until("m: starting, 0 s")
        subprocess.run(["sh", "-c", "echo 'from a child' >&2"], stderr=error_stream_of_children(), check=True)
        terminal.until(f"{CLEAR}from a child\r\nm: starting, 0 s")


def test_commands_without_a_log_show_the_bar(terminal: Terminal) -> None:
    logging.getLogger().setLevel(logging.WARNING)
    with show_on_terminal({"m": progress("starting")}):
        terminal.until("m: starting, 0 s")


def test_no_terminal_in_tests_otherwise() -> None:
    assert terminal_thread() is None


@contextmanager
def running(loading: dict[str, LoadingProgress]) -> Iterator[None]:
    task = asyncio.get_running_loop().create_task(log_lines(loading))
    yield
    task.cancel()


@in_virtual_time
async def test_a_line_for_each_stage_and_every_few_seconds() -> None:
    lines: list[tuple[int, str]] = []
    now = asyncio.get_running_loop().time

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert getattr(record, FIELDS) == {"model": "m"}
            lines.append((int(now()), record.getMessage()))

    listener, loading = Listener(), {"m": LoadingProgress(now)}
    display.logger.addHandler(listener)
    display.logger.setLevel(logging.INFO)
    try:
        with running(loading):
            await asyncio.sleep(0.5)
            loading["m"].report("importing", None, None)
            await asyncio.sleep(1)
            for second in range(12):
                loading["m"].report("reading weights", second, 11)
                await asyncio.sleep(1)
    finally:
        display.logger.removeHandler(listener)
        display.logger.setLevel(logging.NOTSET)
    assert lines == [
        (0, "model m: importing, 0 s"),
        (1, "model m: reading weights, 0 B of 11 B, 1 s"),
        (6, "model m: reading weights, 5 B of 11 B, 6 s"),
        (11, "model m: reading weights, 10 B of 11 B, 11 s"),
    ]
