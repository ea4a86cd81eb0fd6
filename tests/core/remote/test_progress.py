import logging
import os
import pty
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from lmi_core.remote import progress
from lmi_core.remote.location import RemoteModel
from lmi_core.remote.progress import ProgressDisplay

MODEL = RemoteModel("s3://bucket/folder")


@contextmanager
def terminal_for_errors() -> Iterator[Callable[[], str]]:
    """Put a terminal in the place of standard error; what it gives tells what was written there."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)

    def shown() -> str:
        read = b""
        with suppress(BlockingIOError):
            while data := os.read(ours, 4096):
                read += data
        return read.decode()

    with os.fdopen(theirs, "w") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "160")
        yield shown
    os.close(ours)


def test_lines_in_the_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    with ProgressDisplay(MODEL) as display:
        display.begin(2_000_000, 500_000)
        display.update(1_000_000)
        display.finish()
    first, last = caplog.messages
    assert first == "downloading s3://bucket/folder: 1 MB of 2 MB, 0 seconds"
    assert last.startswith("downloaded s3://bucket/folder: 1.5 MB in ")


def test_no_line_where_nothing_was_downloaded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with ProgressDisplay(MODEL) as display:
        display.finish()
    assert caplog.messages == []


def test_bars_on_a_terminal() -> None:
    root = logging.getLogger()
    with terminal_for_errors() as shown:
        handler = logging.StreamHandler()
        root.addHandler(handler)
        try:
            with ProgressDisplay(MODEL) as one, ProgressDisplay(RemoteModel("org/tiny")) as other:
                one.begin(2_000_000, 0)
                other.begin(1000, 0)
                one.update(1_000_000)
                root.error("meanwhile")
            assert handler.stream is sys.stderr
        finally:
            root.removeHandler(handler)
        text = shown()
    assert "s3://bucket/folder" in text
    assert "org/tiny" in text
    assert "1.0/2.0 MB" in text
    assert "meanwhile\r\n" in text
