"""Concurrent download of objects by boto3's transfers."""

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lmi_core.configuration.location import RemoteModel, S3Location
from lmi_core.errors import ConfigurationError
from lmi_core.remote.copies import CopiedFile, Copies
from lmi_core.remote.errors import ChangedDuringCopy
from lmi_core.remote.report import Report
from lmi_core.remote.s3.client import convert_errors, create_client
from lmi_core.remote.s3.listing import StoredObject, list_objects
from lmi_core.remote.updating import update

if TYPE_CHECKING:
    from s3transfer.futures import TransferFuture
    from s3transfer.subscribers import BaseSubscriber
    from types_boto3_s3.client import S3Client


PART_SIZE = 8 * 1024 * 1024
CONNECTIONS = 16
GONE = ("NoSuchKey", "404")
UNFINISHED = ".download"
Ended: TypeAlias = "SimpleQueue[tuple[StoredObject, TransferFuture]]"  # each when its transfer has ended


def download(
    client: "S3Client", bucket: str, objects: Sequence[StoredObject], folder: Path, report: Callable[[int], None]
) -> None:
    """Download each object to a file named by its identity; `report` gets the number of bytes so far.

    A file gets its name when it is complete and on the disk, so that an interrupted download continues with the others.
    Raise ChangedDuringCopy if an object changes, OSError from the disk, or boto3's errors.
    """
    from s3transfer.manager import TransferConfig, TransferManager

    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(f"*{UNFINISHED}*"):
        left.unlink()
    for each in objects:
        if each.size == 0:
            (folder / each.identity).touch()
    largest_first = sorted((each for each in objects if each.size), key=lambda each: -each.size)
    # a threshold of 1, because s3transfer only sends the ETag with requests for parts
    config = TransferConfig(multipart_threshold=1, multipart_chunksize=PART_SIZE, max_request_concurrency=CONNECTIONS)
    ended: Ended = SimpleQueue()
    lock, received = threading.Lock(), 0

    def add(size: int) -> None:
        """Report the bytes of all transfers, which run in threads."""
        nonlocal received
        with lock:
            received += size
            report(received)

    with TransferManager(client, config) as manager:
        for each in largest_first:
            subscriber = cast("BaseSubscriber", _Subscriber(each, add, ended))
            manager.download(bucket, each.key, str(folder / f"{each.identity}{UNFINISHED}"), subscribers=[subscriber])
        for _ in largest_first:
            each, future = ended.get()
            try:
                future.result()
            except Exception as error:
                if _is_change(error):
                    raise ChangedDuringCopy(each.key) from error
                raise
            _publish(each, folder)


class _Subscriber:
    """A subscriber of s3transfer that provides the known size and ETag of an object, which saves a HEAD request."""

    def __init__(self, each: StoredObject, add: Callable[[int], None], ended: Ended) -> None:
        self._object = each
        self._add = add
        self._ended = ended

    def on_queued(self, future: "TransferFuture", **_: Any) -> None:
        future.meta.provide_transfer_size(self._object.size)
        future.meta.provide_object_etag(self._object.etag)

    def on_progress(self, future: "TransferFuture", bytes_transferred: int, **_: Any) -> None:
        self._add(bytes_transferred)

    def on_done(self, future: "TransferFuture", **_: Any) -> None:
        self._ended.put((self._object, future))


def _is_change(error: Exception) -> bool:
    from botocore.exceptions import ClientError
    from s3transfer.exceptions import S3DownloadFailedError

    if isinstance(error, ClientError):
        return error.response["Error"]["Code"] in GONE
    return isinstance(error, S3DownloadFailedError)  # the ETag has changed


def _publish(each: StoredObject, folder: Path) -> None:
    """Rename a downloaded file after it is on the disk."""
    unfinished = folder / f"{each.identity}{UNFINISHED}"
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
        size = file.seek(0, os.SEEK_END)
    if size != each.size:
        raise ConfigurationError(
            f"the server of {each.key} sent {size} bytes instead of {each.size}: it must support range requests"
        )
    unfinished.replace(folder / each.identity)


def update_from_s3(model: RemoteModel, copies: Copies, report: Report) -> Path:
    """Return the folder of a complete copy, downloading missing objects.

    Raise ConfigurationError if this fails, ChangedDuringCopy if an object changes meanwhile, or OSError from the disk.
    """
    with convert_errors(model.source):
        client = create_client(CONNECTIONS)
        listed, skipped = list_objects(client, model)
        objects = {each.path: each for each in listed}
        bucket = S3Location.parse(model.source).bucket

        def transfer(missing: Sequence[CopiedFile], progress: Callable[[int], None]) -> None:
            download(client, bucket, [objects[each.path] for each in missing], copies.partial, progress)

        files = [CopiedFile(each.path, each.size, each.identity) for each in listed]
        return update(model.source, copies, files, skipped, report, transfer)
