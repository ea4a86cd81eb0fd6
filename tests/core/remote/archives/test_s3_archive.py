import pytest

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote.fetching import fetch
from tests.archive_server import files_below
from tests.core.remote.archives.packing import tar_of, zip_of
from tests.s3_server import S3Server

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "sub/folder/notes.txt": b""}


async def error_of(source: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        await fetch(RemoteModel(source))
    return raised.value.message


async def test_archive(s3: S3Server) -> None:
    s3.put("packed", {"mine.tar.gz": tar_of({f"top/{name}": content for name, content in FILES.items()})})
    s3.put("packed", {"mine.tar.gz.md5": b"digits"})
    folder = await fetch(RemoteModel("s3://models/packed/mine.tar.gz"))
    assert (folder.name, files_below(folder)) == ("mine", FILES)
    requests = len(s3.gets)
    assert await fetch(RemoteModel("s3://models/packed/mine.tar.gz")) == folder
    assert len(s3.gets) == requests
    s3.put("packed", {"mine.tar.gz": zip_of({"a": b"1"})})  # a name that says another format
    assert files_below(await fetch(RemoteModel("s3://models/packed/mine.tar.gz"))) == {"a": b"1"}
    s3.put("packed", {"mine.tar.gz": zip_of({"/a": b"1"})})
    assert (await error_of("s3://models/packed/mine.tar.gz")).startswith(
        "s3://models/packed/mine.tar.gz: the archive cannot be unpacked: '/a' is not relative to the archive"
    )
    assert await error_of("s3://models/packed/other.zip") == (
        "s3://models/packed/other.zip: there is no such object: check its name"
    )
