"""Updates of the copy of an archive: on a web server, in S3 or on this host."""

import asyncio
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from urllib.parse import urldefrag

from lmi_core.configuration.location import GGUF, RemoteModel, S3Location, is_web, without_secrets
from lmi_core.errors import ConfigurationError
from lmi_core.remote.archives.gguf_file import convert
from lmi_core.remote.archives.unpacking import Limits, model_root, unpack
from lmi_core.remote.copies import Copies, version_of
from lmi_core.remote.errors import ChangedDuringCopy
from lmi_core.remote.report import Report
from lmi_core.remote.s3.client import convert_errors, create_client
from lmi_core.remote.s3.download import CONNECTIONS, download, list_objects
from lmi_core.remote.space import check_space
from lmi_core.remote.web.download import Download, digest
from lmi_core.remote.web.requests import PARTIAL

CHECKSUM = re.compile(r"sha256=(?P<digits>[0-9a-f]{64})", re.IGNORECASE)
UNPACKED = ".unpacked"


def update_from_archive(model: RemoteModel, copies: Copies, report: Report) -> Path:
    """Return the folder of an unpacked archive, downloading and unpacking it if it has changed.

    Raise ConfigurationError if this fails, ChangedDuringCopy if the archive changes meanwhile, or OSError from the
    disk.
    """
    limits = Limits.read(os.environ)
    if is_web(model.source):
        return asyncio.run(_from_web(model, copies, limits, report))
    if model.in_s3:
        return _from_s3(model, copies, limits, report)
    archive = Path(model.source)
    status = archive.stat()
    version = version_of(status.st_mtime_ns, status.st_size, status.st_ino)
    return copies.current_if(version) or _install(model, copies, archive, version, limits, report)


async def _from_web(model: RemoteModel, copies: Copies, limits: Limits, report: Report) -> Path:
    checksum = _checksum(model)
    if checksum is not None and (copy := copies.current_if(version_of(checksum))) is not None:
        return copy
    download = Download(model.source, copies.partial, limits, report)
    answer = await download.open()
    found = answer.validators
    if checksum is None and answer.status != PARTIAL and (found.etag or found.modified):
        copy = copies.current_if(version_of(*found))
        if copy is not None:
            await answer.close()
            return copy
    found = await download.run(answer)
    content = "" if checksum is None and (found.etag or found.modified) else digest(download.path)
    if checksum is not None and content != checksum:
        shutil.rmtree(copies.partial)
        raise ConfigurationError(f"{model}: the SHA-256 of the download is {content}, not {checksum} as in the URL")
    version = version_of(content) if content else version_of(*found)
    if (copy := copies.current_if(version)) is not None:
        shutil.rmtree(copies.partial)
        return copy
    return _install(model, copies, download.path, version, limits, report)


def _from_s3(model: RemoteModel, copies: Copies, limits: Limits, report: Report) -> Path:
    with convert_errors(model.source):
        client = create_client(CONNECTIONS)
        stored = list_objects(client, model)[0][0]
        version = version_of(stored.identity)
        if (copy := copies.current_if(version)) is not None:
            return copy
        limits.check(stored.size, 0, stored.size)
        copies.partial.mkdir(parents=True, exist_ok=True)
        archive = copies.partial / stored.identity
        if not archive.exists():
            check_space(model.source, copies.partial, stored.size)
            report.begin(stored.size, 0, 0, copies.partial)
            download(client, S3Location.parse(model.source).bucket, [stored], copies.partial, report.progress)
    return _install(model, copies, archive, version, limits, report)


def _checksum(model: RemoteModel) -> str | None:
    """Return the digits of `#sha256=...`. Raise ConfigurationError if they are invalid."""
    fragment = urldefrag(model.source).fragment
    if not fragment:
        return None
    match = CHECKSUM.fullmatch(fragment)
    if match is None:
        raise ConfigurationError(
            f"{model}: the part after # must be sha256= and 64 hexadecimal digits. Given: {fragment}"
        )
    return match["digits"].lower()


def _install(model: RemoteModel, copies: Copies, archive: Path, version: str, limits: Limits, report: Report) -> Path:
    """Unpack an archive into a new copy. If that fails, leave nothing behind."""
    try:
        copies.discard(version)  # left by a process that was killed
        if without_secrets(model.source).lower().endswith(GGUF):
            convert(archive, copies.staging_path(version), report)
        else:
            _unpack(archive, copies.staging_path(version), limits, report)
        return copies.publish(version)
    except ConfigurationError as error:
        raise ConfigurationError(f"{model}: {error.message}") from error
    finally:
        copies.discard(version)
        shutil.rmtree(copies.partial, ignore_errors=True)


def _unpack(archive: Path, target: Path, limits: Limits, report: Report) -> None:
    unpacked = target.with_name(UNPACKED)
    with archive.open("rb") as file:
        before = os.fstat(file.fileno())
        report.begin(before.st_size, 0, 0, target.parents[1], unpacks=True)
        try:
            unpack(file, unpacked, limits, report.progress)
        except ConfigurationError:
            _check_unchanged(archive, before)  # its error names the cause
            raise
        _check_unchanged(archive, before)
    model_root(unpacked).replace(target)
    with suppress(FileNotFoundError):
        shutil.rmtree(unpacked)


def _check_unchanged(archive: Path, before: os.stat_result) -> None:
    now = archive.stat()
    if (now.st_mtime_ns, now.st_size, now.st_ino) != (before.st_mtime_ns, before.st_size, before.st_ino):
        raise ChangedDuringCopy(str(archive))
