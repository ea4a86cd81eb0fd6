"""Listing of the objects below an S3 location, and the paths of their files."""

from collections.abc import Sequence
from operator import attrgetter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from lmi_core.configuration.location import RemoteModel, S3Location, is_archive_name
from lmi_core.errors import ConfigurationError
from lmi_core.remote.copies import version_of
from lmi_core.remote.selection import useless

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client
    from types_boto3_s3.type_defs import ObjectTypeDef


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
