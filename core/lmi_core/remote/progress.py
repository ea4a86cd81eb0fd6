"""The progress of one download, reported while it runs and logged when it is complete."""

import logging
import time

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors.sizes import in_words
from lmi_core.logs.loading_progress import Report
from lmi_core.remote.report import Begin

logger = logging.getLogger(__name__)


class DownloadProgress:
    """A translator of the download process's messages into reports."""

    def __init__(self, model: RemoteModel, report: Report) -> None:
        self._model = model
        self._report = report
        self._stage: Begin | None = None
        self._began = 0.0
        self._done = 0

    def begin(self, stage: Begin) -> None:
        """Start a stage, and end the previous one."""
        self._log_end()
        self._stage, self._began = stage, time.monotonic()
        self._log_begin(stage)
        self.update(stage.done)

    def update(self, done: int) -> None:
        if self._stage is not None:
            self._done = done
            doing = "unpacking" if self._stage.unpacks else "downloading"
            self._report(f"{doing} {self._model}", done, self._stage.total)

    def finish(self) -> None:
        """Report and log the end, unless there was nothing to download."""
        if self._stage is not None:
            self.update(self._done if self._stage.total is None else self._stage.total)
            self._log_end()

    def _log_begin(self, stage: Begin) -> None:
        doing = "unpacking" if stage.unpacks else "downloading"
        size = "" if stage.total is None else f": {in_words(stage.total)}"
        before = f", {in_words(stage.done)} of which are already there" if stage.done else ""
        without = f"; skipped: {in_words(stage.skipped)} in files that are not needed" if stage.skipped else ""
        logger.info("%s %s to %s%s%s%s", doing, self._model, stage.folder, size, before, without)

    def _log_end(self) -> None:
        if self._stage is None:
            return
        did = "unpacked" if self._stage.unpacks else "downloaded"
        total = self._done if self._stage.total is None else self._stage.total
        seconds = time.monotonic() - self._began
        logger.info("%s %s: %s in %.1f seconds", did, self._model, in_words(total - self._stage.done), seconds)
