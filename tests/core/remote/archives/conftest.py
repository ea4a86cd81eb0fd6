from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.archive_server import ArchiveServer, archive_server


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ArchiveServer]:
    """A web server, and an empty cache."""
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("SERVING_DOWNLOAD_DIR", raising=False)
    with archive_server() as server:
        yield server
