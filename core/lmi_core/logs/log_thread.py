"""The thread that writes log lines and, on a terminal, a progress line below them."""

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import TextIO

from lmi_core.logs.formats import lost_lines_message

MAX_LINES = 10_000  # waiting to be written
FLUSH_SECONDS = 1.0  # the longest wait for a flush, because the reader may be blocked
FRAME_SECONDS = 0.1  # between updates of the progress line
REASON = "nothing read standard error, or its disk was full"
CLEAR = "\r\x1b[2K"


class LogThread:
    """A bounded queue of lines for standard error, and the thread that writes them.

    If the queue or the disk is full, lines are dropped; a later line reports their number.
    """

    def __init__(self, stream: TextIO | None = None, max_lines: int = MAX_LINES) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._max_lines = max_lines
        self._written = threading.Condition()
        self._unwritten = 0
        self._dropped = 0
        self._reported = 0  # how many of them the last line reports, if it can be written
        self._status: Callable[[], str] | None = None
        self._shown = ""
        self._pipe: int | None = None
        self._failed = False  # the last write, which may have written part of a line
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    @property
    def is_terminal(self) -> bool:
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        with contextlib.suppress(OSError, ValueError):
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        return 80

    def write(self, line: str) -> None:
        """Queue a line, without waiting."""
        with self._written:
            if self._unwritten >= self._max_lines:
                self._dropped += 1
                return
            self._unwritten += 1
        self._lines.put(line)

    def show(self, status: Callable[[], str] | None) -> None:
        """Show the result of `status` below the log from now on, several times a second; None ends this.

        `status` is called in this thread, and must return less than a line of the terminal.
        """
        self._status = status
        with self._written:
            self._unwritten += 1
        self._lines.put("")

    def pipe(self) -> int:
        """Return the descriptor of a pipe whose lines are written here, for standard error of child processes."""
        if self._pipe is None:
            reading, self._pipe = os.pipe()
            threading.Thread(target=self._relay, args=(reading,), name="log of children", daemon=True).start()
        return self._pipe

    def flush(self) -> None:
        """Wait until all lines are written, unless the reader is stuck."""
        with self._written:
            self._written.wait_for(lambda: self._unwritten == 0, FLUSH_SECONDS)

    def close(self) -> None:
        """Write the queued lines, and end the thread."""
        self._status = None
        self.flush()
        self._lines.put(None)

    def _relay(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                self.write(line.rstrip().rpartition("\r")[2])  # the last state of a progress bar

    def _run(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=FRAME_SECONDS if self._status is not None else None)
            except queue.Empty:
                self._write_out("")
                continue
            if line is None:
                return
            if not self._write_out(self._with_count(line)):
                self._count_lost(line)
            with self._written:
                self._unwritten -= 1
                self._written.notify_all()

    def _count_lost(self, line: str) -> None:
        with self._written:
            self._dropped += self._reported + bool(line)

    def _with_count(self, line: str) -> str:
        with self._written:
            self._reported, self._dropped = self._dropped, 0
        dropped = self._reported
        lines = [line] if line else []
        if dropped:
            lines.append(lost_lines_message(dropped, REASON))
        return "".join(f"{each}\n" for each in lines)

    def _write_out(self, text: str) -> bool:
        """Append to the output; return False on failure."""
        status = self._status() if self._status is not None else ""
        if not text and status == self._shown:
            return True
        before = CLEAR if self._shown else "\n" * self._failed
        self._shown = status
        self._failed = True
        with contextlib.suppress(OSError, ValueError):  # the reader has gone, the disk is full, or the stream is closed
            self._stream.write(f"{before}{text}{status}")
            self._stream.flush()
            self._failed = False
        return not self._failed
