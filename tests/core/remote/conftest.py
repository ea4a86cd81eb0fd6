"""Fixtures of servers, S3's for each module, and of a cache for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.archive_server import ArchiveServer, archive_server
from tests.s3_server import S3Server, s3_server


@pytest.fixture(scope="module")
def s3_of_module() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def s3(s3_of_module: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[S3Server]:
    """Point the environment to the S3 server and to an empty cache."""
    for name, value in s3_of_module.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SERVING_DOWNLOAD_DIR", raising=False)
    s3_of_module.reset()
    yield s3_of_module
    s3_of_module.reset()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ArchiveServer]:
    """Start a web server, with an empty cache."""
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("SERVING_DOWNLOAD_DIR", raising=False)
    with archive_server() as server:
        yield server
