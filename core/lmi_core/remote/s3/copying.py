"""Copying of an S3 location; runs in the download process."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote import locks
from lmi_core.remote.errors import ChangedMeanwhile, Unreachable
from lmi_core.remote.report import Report
from lmi_core.remote.s3.client import create_client, explained
from lmi_core.remote.s3.copies import Copies, is_whole
from lmi_core.remote.s3.download import CONNECTIONS, download
from lmi_core.remote.s3.listing import list_objects
from lmi_core.remote.s3.objects import Listing
from lmi_core.remote.space import check_space

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

MAX_ATTEMPTS = 3  # when objects change during the download


def copy_from_s3(model: RemoteModel, downloads: Path, report: Report) -> Path:
    """Return a complete copy's folder, downloading what is missing.

    Raise ConfigurationError where it cannot be copied, or OSError from the disk.
    """
    copies = Copies(model, downloads)
    waiting = f"{model} is already being downloaded by another process: waiting for it"
    with locks.exclusive(copies.lock, lambda: report.note(waiting, logging.INFO)):
        try:
            with explained(model.source):
                return _update(create_client(CONNECTIONS), model, copies, report)
        except Unreachable as error:
            current = copies.current()
            if current is None:
                raise
            report.note(f"{error.message}. The copy downloaded earlier is served, which may be out of date")
            return current[0]


def _update(client: "S3Client", model: RemoteModel, copies: Copies, report: Report) -> Path:
    for _ in range(MAX_ATTEMPTS):
        listing, skipped = list_objects(client, model)
        current = copies.current()
        if current is not None and current[1].version == listing.version:
            return current[0]
        try:
            return _download(client, copies, listing, report, skipped)
        except ChangedMeanwhile:
            report.note(f"{model} changed during the download: downloading the changes")
    raise ConfigurationError(f"{model} keeps changing during the download: start again once the upload is finished")


def _download(client: "S3Client", copies: Copies, listing: Listing, report: Report, skipped: int) -> Path:
    copy = copies.copy(listing.version)
    if is_whole(copy, listing):  # a process ended just before it set the current version
        copies.set_current(listing)
        return copy
    missing = copies.missing(listing)
    copies.remove_stale(listing)
    needed = sum(each.size for each in missing)
    check_space(copies.source, copies.folder, needed)
    report.begin(listing.size, listing.size - needed, skipped, copy)
    there = listing.size - needed
    download(client, copies.location.bucket, missing, copies.partial, lambda done: report.progress(there + done))
    return copies.install(listing)
