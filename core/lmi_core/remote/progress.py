"""The progress of one download, reported while it runs and logged when it is complete."""

import logging
import time

from lmi_core.errors.sizes import readable
from lmi_core.logs.loading_progress import Report
from lmi_core.remote.report import Begin

logger = logging.getLogger(__name__)

DOWNLOADED, COPIED, UNPACKED = ("downloading", "downloaded"), ("copying", "copied"), ("unpacking", "unpacked")


class DownloadProgress:
    """A translator of the download process's messages into reports."""

    def __init__(self, model: object, report: Report, words: tuple[str, str] = DOWNLOADED) -> None:
        """Report on a model, with the words for what is being done and for what was done."""
        self._model = model
        self._words = words
        self._report = report
        self._stage: Begin | None = None
        self._began = 0.0
        self._done = 0

    def begin(self, stage: Begin) -> None:
        """Start a stage, and end the previous one."""
        self._log_end()
        self._stage, self._began = stage, time.monotonic()
        size = "" if stage.total is None else f": {readable(stage.total)}"
        before = f", {readable(stage.done)} of which are already there" if stage.done else ""
        without = f"; skipped: {readable(stage.skipped)} in files that are not needed" if stage.skipped else ""
        doing = self._words_for(stage)[0]
        logger.info("%s %s to %s%s%s%s", doing, self._model, stage.folder, size, before, without)
        self.update(stage.done)

    def update(self, done: int) -> None:
        if self._stage is not None:
            self._done = done
            self._report(f"{self._words_for(self._stage)[0]} {self._model}", done, self._stage.total)

    def finish(self) -> None:
        """Report and log the end, unless there was nothing to download."""
        if self._stage is not None:
            self.update(self._done if self._stage.total is None else self._stage.total)
            self._log_end()

    def _log_end(self) -> None:
        if self._stage is None:
            return
        total = self._done if self._stage.total is None else self._stage.total
        seconds = time.monotonic() - self._began
        did, size = self._words_for(self._stage)[1], readable(total - self._stage.done)
        logger.info("%s %s: %s in %.1f seconds", did, self._model, size, seconds)

    def _words_for(self, stage: Begin) -> tuple[str, str]:
        return UNPACKED if stage.unpacks else self._words
