"""Updates of the copy of an S3 location, which download only new objects."""

from collections.abc import Callable, Sequence
from pathlib import Path

from lmi_core.configuration.location import RemoteModel, S3Location
from lmi_core.remote.copies import CopiedFile, Copies
from lmi_core.remote.report import Report
from lmi_core.remote.s3.client import convert_errors, create_client
from lmi_core.remote.s3.download import CONNECTIONS, download
from lmi_core.remote.s3.listing import list_objects
from lmi_core.remote.updating import update


def update_from_s3(model: RemoteModel, copies: Copies, report: Report) -> Path:
    """Return the folder of a complete copy, downloading missing objects.

    Raise ConfigurationError if it cannot be copied, ChangedDuringCopy, or OSError from the disk.
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
