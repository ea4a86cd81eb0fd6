"""Making a copy of a model in S3 or in an archive, or updating it; runs in the download process."""

import logging
from pathlib import Path

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote import locks
from lmi_core.remote.archives.updating import update_from_archive
from lmi_core.remote.copies import Copies
from lmi_core.remote.errors import ChangedMeanwhile, Unreachable
from lmi_core.remote.report import Report
from lmi_core.remote.s3.updating import update_from_s3

MAX_ATTEMPTS = 3  # where the model changes meanwhile


def make_copy(model: RemoteModel, downloads: Path, report: Report) -> Path:
    """Return the folder of a complete copy; an older one if the model is unreachable now.

    Raise ConfigurationError if it cannot be copied, or OSError from the disk.
    """
    copies = Copies(model, downloads)
    update = update_from_archive if model.is_archive else update_from_s3
    waiting = f"{model} is already being copied by another process: waiting for it"
    with locks.exclusive(copies.lock, lambda: report.note(waiting, logging.INFO)):
        for _ in range(MAX_ATTEMPTS):
            try:
                return update(model, copies, report)
            except ChangedMeanwhile:
                report.note(f"{model} changed meanwhile: copying what is new")
            except Unreachable as error:
                current = copies.current()
                if current is None:
                    raise
                report.note(f"{error.message}. The copy made earlier is served, which may be out of date")
                return current[0]
        raise ConfigurationError(f"{model} keeps changing: start again once the upload is finished")
