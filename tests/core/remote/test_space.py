import errno
from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.errors.sizes import readable
from lmi_core.remote.space import check_space, explain


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (5_370_000, "5.37 MB"), (14e10, "140 GB")]
)
def test_in_words(size: float, words: str) -> None:
    assert readable(size) == words


def test_too_little(tmp_path: Path) -> None:
    check_space("s3://b/m", tmp_path, 1)
    with pytest.raises(ConfigurationError, match=r"s3://b/m: the download needs 3 PB, but the disk of .* has .* free"):
        check_space("s3://b/m", tmp_path, 3 * 10**15)


def test_disk_that_fills_up() -> None:
    assert explain(OSError(errno.ENOSPC, "No space left on device"), "s3://b/m", Path("/cache")) == (
        "s3://b/m: the disk of /cache is full: free some space, or set LMI_CACHE to a folder on another disk"
    )
