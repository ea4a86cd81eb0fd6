"""Copying of an archive, and unpacking it; runs in the download process."""

import logging
import os
import re
import shutil
from pathlib import Path
from urllib.parse import urldefrag

from lmi_core.configuration.location import RemoteModel, is_web
from lmi_core.errors import ConfigurationError
from lmi_core.remote import locks
from lmi_core.remote.archives.copies import ArchiveCopies, version_of
from lmi_core.remote.archives.download import Download, Partial, digest
from lmi_core.remote.archives.limits import Limits
from lmi_core.remote.archives.s3_archive import download_object, find_object
from lmi_core.remote.archives.web import PARTIAL
from lmi_core.remote.errors import ChangedMeanwhile, Unreachable
from lmi_core.remote.report import Report
from lmi_core.remote.s3.client import explained

MAX_ATTEMPTS = 3  # where the archive changes meanwhile
CHECKSUM = re.compile(r"sha256=(?P<digits>[0-9a-f]{64})", re.IGNORECASE)


def copy_archive(model: RemoteModel, downloads: Path, report: Report) -> Path:
    """Return the folder that an archive is unpacked to, downloading and unpacking it where it has changed.

    Raise ConfigurationError where it cannot be had, or OSError from the disk.
    """
    copies, limits = ArchiveCopies(model, downloads), Limits.read(os.environ)
    waiting = f"{model} is already being unpacked by another process: waiting for it"
    with locks.exclusive(copies.lock, lambda: report.note(waiting, logging.INFO)):
        for _ in range(MAX_ATTEMPTS):
            try:
                return _copy(model, copies, limits, report)
            except ChangedMeanwhile:
                report.note(f"{model} changed meanwhile: beginning anew")
            except Unreachable as error:
                current = copies.current()
                if current is None:
                    raise
                report.note(f"{error.message}. The copy unpacked earlier is served, which may be out of date")
                return current[0]
        raise ConfigurationError(f"{model} keeps changing: start again once the upload is finished")


def _copy(model: RemoteModel, copies: ArchiveCopies, limits: Limits, report: Report) -> Path:
    if is_web(model.source):
        return _from_web(model, copies, limits, report)
    if model.in_s3:
        return _from_s3(model, copies, limits, report)
    archive = Path(model.source)
    status = archive.stat()
    version = version_of(status.st_mtime_ns, status.st_size, status.st_ino)
    return copies.current_if(version) or _install(model, copies, archive, version, limits, report)


def _from_web(model: RemoteModel, copies: ArchiveCopies, limits: Limits, report: Report) -> Path:
    checksum = _checksum(model)
    if checksum is not None and (copy := copies.current_if(version_of(checksum))) is not None:
        return copy
    partial = Partial(copies.partial)
    download = Download(model.source, partial, limits, report)
    answer = download.open()
    found = answer.validators
    if checksum is None and answer.status != PARTIAL and (found.etag or found.modified):
        copy = copies.current_if(version_of(*found))
        if copy is not None:
            answer.close()
            return copy
    found = download.run(answer)
    content = "" if checksum is None and (found.etag or found.modified) else digest(partial.path)
    if checksum is not None and content != checksum:
        shutil.rmtree(copies.partial)
        raise ConfigurationError(f"{model}: the SHA-256 of what came is {content}, and not {checksum} as the URL says")
    version = version_of(content) if content else version_of(*found)
    if (copy := copies.current_if(version)) is not None:
        shutil.rmtree(copies.partial)
        return copy
    return _install(model, copies, partial.path, version, limits, report)


def _from_s3(model: RemoteModel, copies: ArchiveCopies, limits: Limits, report: Report) -> Path:
    with explained(model.source):
        client, stored = find_object(model)
        version = version_of(stored.identity)
        if (copy := copies.current_if(version)) is not None:
            return copy
        limits.check(stored.size, 0, stored.size)
        path = download_object(client, model, stored, copies.partial, report)
    return _install(model, copies, path, version, limits, report)


def _checksum(model: RemoteModel) -> str | None:
    """Return the digits of `#sha256=...`. Raise ConfigurationError where they are not valid."""
    fragment = urldefrag(model.source).fragment
    if not fragment:
        return None
    match = CHECKSUM.fullmatch(fragment)
    if match is None:
        raise ConfigurationError(
            f"{model}: what follows # must be sha256= and 64 hexadecimal digits. Given: {fragment}"
        )
    return match["digits"].lower()


def _install(
    model: RemoteModel, copies: ArchiveCopies, archive: Path, version: str, limits: Limits, report: Report
) -> Path:
    try:
        return copies.install(archive, version, limits, report)
    except ConfigurationError as error:
        raise ConfigurationError(f"{model}: {error.message}") from error
    finally:
        shutil.rmtree(copies.partial, ignore_errors=True)
