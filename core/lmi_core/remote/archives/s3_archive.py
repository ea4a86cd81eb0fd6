"""An archive in S3: a single object."""

from pathlib import Path
from typing import TYPE_CHECKING

from lmi_core.configuration.location import RemoteModel, S3Location
from lmi_core.remote.report import Report
from lmi_core.remote.s3.client import create_client
from lmi_core.remote.s3.download import CONNECTIONS, download
from lmi_core.remote.s3.listing import list_objects
from lmi_core.remote.s3.objects import StoredObject
from lmi_core.remote.space import check_space

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client


def find_object(model: RemoteModel) -> "tuple[S3Client, StoredObject]":
    """Return a client and the object. Raise ConfigurationError where there is none, or boto3's errors."""
    client = create_client(CONNECTIONS)
    listing, _ = list_objects(client, model)
    return client, listing.objects[0]


def download_object(client: "S3Client", model: RemoteModel, stored: StoredObject, folder: Path, report: Report) -> Path:
    """Return the object's file in the folder, downloading what is missing.

    Raise ChangedMeanwhile where the object changes, OSError from the disk, or boto3's errors.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / stored.identity
    if not path.exists():
        check_space(model.source, folder, stored.size)
        report.begin(stored.size, 0, 0, folder)
        download(client, S3Location.parse(model.source).bucket, [stored], folder, report.progress)
    return path
