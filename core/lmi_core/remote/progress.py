"""Display of download progress: bars on a terminal, otherwise a log line every few seconds."""

import logging
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from lmi_core.remote.location import RemoteModel
from lmi_core.remote.space import in_words

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

logger = logging.getLogger(__name__)

LOG_SECONDS = 5.0
NAME_WIDTH = 40


class ProgressDisplay:
    """The display of one download; several may be shown at the same time."""

    def __init__(self, model: RemoteModel) -> None:
        self._model = model
        self._total = 0
        self._before = 0
        self._began = self._logged = 0.0
        self._bar: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            _bars.remove(self._bar)
            self._bar = None

    def begin(self, total: int, done: int) -> None:
        self._total, self._before = total, done
        self._began = self._logged = time.monotonic()
        if self._bar is None and sys.stderr.isatty():
            self._bar = _bars.add(self._model.source, total, done)

    def update(self, done: int) -> None:
        if self._bar is not None:
            _bars.update(self._bar, done)
        elif time.monotonic() - self._logged >= LOG_SECONDS:
            self._logged = time.monotonic()
            share = f"{in_words(done)} of {in_words(self._total)}"
            logger.info("downloading %s: %s, %.0f seconds", self._model, share, self._logged - self._began)

    def finish(self) -> None:
        """Log the outcome, unless there was nothing to download."""
        if self._began:
            seconds = time.monotonic() - self._began
            size = in_words(self._total - self._before)
            logger.info("downloaded %s: %s in %.1f seconds", self._model, size, seconds)


class _Bars:
    """The terminal's bars, drawn together below the log lines."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._handlers: list[logging.StreamHandler[TextIO]] = []

    def add(self, name: str, total: int, done: int) -> "TaskID":
        if self._progress is None:
            self._start()
        assert self._progress is not None
        shown = name if len(name) <= NAME_WIDTH else f"...{name[3 - NAME_WIDTH :]}"
        return self._progress.add_task(shown, total=total, completed=done)

    def update(self, task: "TaskID", done: int) -> None:
        assert self._progress is not None
        self._progress.update(task, completed=done, refresh=True)

    def remove(self, task: "TaskID") -> None:
        assert self._progress is not None
        self._progress.remove_task(task)
        if not self._progress.tasks:
            self._stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.progress import TransferSpeedColumn as Speed

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), Speed(), TimeRemainingColumn())
        terminal = sys.stderr
        self._progress = Progress(*columns, console=Console(file=terminal), transient=True)
        self._progress.start()  # replaces sys.stderr by a writer above the bars
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is terminal:
                handler.setStream(sys.stderr)
                self._handlers.append(handler)

    def _stop(self) -> None:
        assert self._progress is not None
        self._progress.stop()
        for handler in self._handlers:
            handler.setStream(sys.stderr)
        self._progress, self._handlers = None, []


_bars = _Bars()
