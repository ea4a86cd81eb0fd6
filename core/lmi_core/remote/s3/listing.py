"""Listing of the objects below an S3 location."""

from typing import TYPE_CHECKING

from lmi_core.configuration.location import RemoteModel, S3Location, is_archive_name
from lmi_core.errors import ConfigurationError
from lmi_core.remote.s3.objects import Listing, StoredObject, check_paths, file_path
from lmi_core.remote.selection import useless

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client
    from types_boto3_s3.type_defs import ObjectTypeDef


def list_objects(client: "S3Client", model: RemoteModel) -> tuple[Listing, int]:
    """Return the objects to copy, and the number of skipped bytes.

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
        objects = [_stored(each, location) for each in listed]
        check_paths(objects)
    except ConfigurationError as error:
        raise ConfigurationError(f"{model.source}: {error.message}") from None
    skipped = set() if model.everything else useless(each.path for each in objects)
    chosen = sorted((each for each in objects if each.path not in skipped), key=lambda each: each.path)
    return Listing(chosen), sum(each.size for each in objects if each.path in skipped)


def _stored(listed: "ObjectTypeDef", location: S3Location) -> StoredObject:
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
