import pytest

from lmi_core.configuration.location import RemoteModel
from lmi_core.logs.loading_progress import LoadingProgress
from lmi_core.remote.progress import DownloadProgress
from lmi_core.remote.report import Begin

MODEL = RemoteModel("s3://bucket/folder")


def test_a_download_is_reported_to_its_last_byte(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    progress = LoadingProgress(lambda: 0.0)
    download = DownloadProgress(MODEL, progress.report)
    download.begin(Begin(2_000_000, 500_000, 0, "/cache"))
    assert str(progress) == "downloading s3://bucket/folder, 500 kB of 2 MB, 0 s"
    download.update(1_000_000)
    assert progress.share == 0.5
    download.finish()
    assert progress.share == 1.0
    first, last = caplog.messages
    assert first == "downloading s3://bucket/folder to /cache: 2 MB, 500 kB of which are already there"
    assert last.startswith("downloaded s3://bucket/folder: 1.5 MB in ")


def test_stages_of_an_archive_of_unknown_size(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    progress = LoadingProgress(lambda: 0.0)
    download = DownloadProgress(RemoteModel("https://user:secret@host/m.zip?Signature=secret"), progress.report)
    download.begin(Begin(None, 0, 0, "/cache"))
    download.update(1_000_000)
    assert (str(progress), progress.share) == ("downloading https://host/m.zip, 1 MB, 0 s", None)
    download.begin(Begin(1_000_000, 0, 0, "/cache", unpacks=True))
    download.update(500_000)
    assert str(progress) == "unpacking https://host/m.zip, 500 kB of 1 MB, 0 s"
    download.finish()
    starts = [message.partition(" in ")[0] for message in caplog.messages]
    assert starts == [
        "downloading https://host/m.zip to /cache",
        "downloaded https://host/m.zip: 1 MB",
        "unpacking https://host/m.zip to /cache: 1 MB",
        "unpacked https://host/m.zip: 1 MB",
    ]


def test_no_line_where_nothing_was_downloaded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    progress = LoadingProgress()
    DownloadProgress(MODEL, progress.report).finish()
    assert (caplog.messages, progress.what) == ([], "")
