import errno
from pathlib import Path

import pytest

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.errors.sizes import in_words
from lmi_core.remote.report import Job
from lmi_core.remote.space import check_space
from lmi_core.remote.worker import explained


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (5_370_000, "5.37 MB"), (14e10, "140 GB")]
)
def test_in_words(size: float, words: str) -> None:
    assert in_words(size) == words


def test_too_little(tmp_path: Path) -> None:
    check_space("s3://b/m", tmp_path, 1)
    with pytest.raises(ConfigurationError, match=r"s3://b/m: the download needs 3 PB, but the disk of .* has .* free"):
        check_space("s3://b/m", tmp_path, 3 * 10**15)


def test_disk_that_fills_up() -> None:
    job = Job(RemoteModel("s3://b/m"), "/cache")
    assert explained(OSError(errno.ENOSPC, "No space left on device"), job) == (
        "s3://b/m: the disk of /cache is full: free some space, or set LMI_CACHE to a folder on another disk"
    )
