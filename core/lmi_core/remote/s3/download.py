"""Listing of the objects below an S3 location, and their concurrent download by boto3's transfers."""

import os
import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path, PurePosixPath
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec

from lmi_core.configuration.location import RemoteModel, S3Location, is_archive_name
from lmi_core.errors import ConfigurationError
from lmi_core.remote.copies import CopiedFile, Copies, version_of
from lmi_core.remote.errors import ChangedDuringCopy
from lmi_core.remote.report import Report
from lmi_core.remote.s3.client import convert_errors, create_client
from lmi_core.remote.selection import useless
from lmi_core.remote.updating import update

if TYPE_CHECKING:
    from s3transfer.futures import TransferFuture
    from s3transfer.subscribers import BaseSubscriber
    from types_boto3_s3.client import S3Client
    from types_boto3_s3.type_defs import ObjectTypeDef


PART_SIZE = 8 * 1024 * 1024
CONNECTIONS = 16
GONE = ("NoSuchKey", "404")
UNFINISHED = ".download"
Ended: TypeAlias = "SimpleQueue[tuple[StoredObject, TransferFuture]]"  # each when its transfer has ended


class StoredObject(msgspec.Struct, array_like=True, frozen=True):
    """An object in a listing; `path` is that of its file below the copy's folder."""

    path: str
    key: str
    size: int
    etag: str
    modified: str

    @property
    def identity(self) -> str:
        """An identifier of the object's content."""
        return version_of(self.key, self.size, self.etag, self.modified)


def list_objects(client: "S3Client", model: RemoteModel) -> tuple[Sequence[StoredObject], int]:
    """Return the objects to copy, by path, and the number of skipped bytes.

    Raise ConfigurationError if there is nothing to copy, or boto3's errors.
    """
    location = S3Location.parse(model.source)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=location.bucket, Prefix=location.prefix)
    listed = [each for page in pages for each in page.get("Contents", []) if not each["Key"].endswith("/")]
    if is_archive_name(location.prefix):
        listed = [each for each in listed if each["Key"] == location.prefix]
    if not listed:
        raise ConfigurationError(f"{model.source}: {_why_empty(client, location)}")
    try:
        objects = [_stored_object(each, location) for each in listed]
    except ConfigurationError as error:
        raise ConfigurationError(f"{model.source}: {error.message}") from None
    paths = {each.path: each.key for each in objects}
    for each in objects:
        for parent in map(str, PurePosixPath(each.path).parents):
            if parent in paths:
                raise ConfigurationError(
                    f"{model.source}: the keys {paths[parent]!r} and {each.key!r} cannot be a file and a file in a "
                    "folder of that name: rename or delete one of them"
                )
    skipped = set() if model.everything else useless(each.path for each in objects)
    chosen = sorted((each for each in objects if each.path not in skipped), key=attrgetter("path"))
    return chosen, sum(each.size for each in objects if each.path in skipped)


def file_path(key: str, folder: str) -> str:
    """Return a key's path below the copy's folder. Raise ConfigurationError if it would be outside."""
    path = key.removeprefix(folder)
    if any(part in ("", ".", "..") or "\0" in part for part in path.split("/")):
        raise ConfigurationError(
            f"the key {key!r} is not a valid file path within the folder: rename or delete that object"
        )
    return path


def _stored_object(listed: "ObjectTypeDef", location: S3Location) -> StoredObject:
    key = listed["Key"]
    modified = listed["LastModified"].isoformat()
    return StoredObject(file_path(key, location.folder), key, listed["Size"], listed["ETag"], modified)


def _why_empty(client: "S3Client", location: S3Location) -> str:
    if is_archive_name(location.prefix):
        return "there is no such object: check its name"
    key = location.prefix.removesuffix("/")
    found = client.list_objects_v2(Bucket=location.bucket, Prefix=key, MaxKeys=1).get("Contents", [])
    if key and found and found[0]["Key"] == key:
        return "this is a single object: give the folder that contains it"
    return "the folder contains no objects: check its name"


def download(
    client: "S3Client", bucket: str, objects: Sequence[StoredObject], folder: Path, report: Callable[[int], None]
) -> None:
    """Download each object to a file named by its identity; `report` gets the number of bytes so far.

    A file gets its name when it is complete and on the disk, so that an interrupted download continues with the others.
    Raise ChangedDuringCopy if an object changes, OSError from the disk, or boto3's errors.
    """
    from botocore.exceptions import ClientError
    from s3transfer.exceptions import S3DownloadFailedError
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
            except S3DownloadFailedError as error:  # the ETag has changed
                raise ChangedDuringCopy(each.key) from error
            except ClientError as error:
                if error.response["Error"]["Code"] in GONE:
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
