"""Updates of the copy of an S3 location, which download only new objects."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from lmi_core.configuration.location import RemoteModel, S3Location
from lmi_core.remote.copies import CopiedFile, Copies, are_whole, file_size
from lmi_core.remote.report import Report
from lmi_core.remote.s3.client import create_client, explained
from lmi_core.remote.s3.download import CONNECTIONS, download
from lmi_core.remote.s3.listing import list_objects
from lmi_core.remote.s3.objects import Listing, StoredObject
from lmi_core.remote.space import check_space

Unchanged = Mapping[tuple[str, str], Path]  # files of the current copy by path and identity


def update_from_s3(model: RemoteModel, copies: Copies, report: Report) -> Path:
    """Return the folder of a complete copy, downloading missing objects.

    Raise ConfigurationError if it cannot be copied, ChangedMeanwhile, or OSError from the disk.
    """
    with explained(model.source):
        client = create_client(CONNECTIONS)
        listing, skipped = list_objects(client, model)
        if (copy := copies.current_if(listing.version)) is not None:
            return copy
        files = [CopiedFile(each.path, each.size, each.identity) for each in listing.objects]
        copy = copies.copy(listing.version)
        if are_whole(copy, files):  # a process ended just before it set the current version
            return copies.set_current(listing.version, files)
        unchanged = _unchanged(copies)
        missing = _missing(copies, listing, unchanged)
        wanted = {each.identity for each in listing.objects}
        for path in copies.partial.glob("*"):
            if path.name.partition(".")[0] not in wanted:
                path.unlink()
        needed = sum(each.size for each in missing)
        check_space(model.source, copies.folder, needed)
        there = listing.size - needed
        report.begin(listing.size, there, skipped, copy)
        bucket = S3Location.parse(model.source).bucket
        download(client, bucket, missing, copies.partial, lambda done: report.progress(there + done))
        _assemble(copies, listing, unchanged)
        return copies.publish(listing.version, files)


def _unchanged(copies: Copies) -> Unchanged:
    current = copies.current()
    if current is None:
        return {}
    copy, contents = current
    return {(each.path, each.identity): copy / each.path for each in contents.files}


def _missing(copies: Copies, listing: Listing, unchanged: Unchanged) -> list[StoredObject]:
    """Return the objects that are neither in the current copy nor downloaded."""
    staged = copies.staged(listing.version)
    return [
        each
        for each in listing.objects
        if (each.path, each.identity) not in unchanged
        and each.size not in (file_size(staged / each.path), file_size(copies.partial / each.identity))
    ]


def _assemble(copies: Copies, listing: Listing, unchanged: Unchanged) -> None:
    """Stage a copy from downloaded objects and from unchanged files of the current copy."""
    for each in listing.objects:
        target = copies.staged(listing.version) / each.path
        target.parent.mkdir(parents=True, exist_ok=True)
        downloaded = copies.partial / each.identity
        if downloaded.exists():
            downloaded.replace(target)
        elif not target.exists():
            source = unchanged[each.path, each.identity]
            try:
                os.link(source, target)
            except OSError:
                unfinished = target.with_name(target.name[:200] + ".copying")
                shutil.copy2(source, unfinished)
                unfinished.replace(target)
