import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lmi_core.remote import fetching
from lmi_core.script.function import process
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.prepared_workers import PreparedWorker

FUNCTION, DOWNLOAD, OTHER = process.TARGET, fetching.TARGET, "lmi_core.nothing:run"


@pytest.fixture
def fewer_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def kind_of(target: str) -> type:
    """Return the class of a worker's process."""
    worker = LocalProcess(target)
    await worker.start()
    try:
        assert worker._process is not None
        return type(worker._process._process)
    finally:
        worker.kill()
        await worker.stop()


async def test_functions_and_downloads_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [await kind_of(target) for target in (FUNCTION, DOWNLOAD)] == [PreparedWorker] * 2
    monkeypatch.setenv("HF_HOME", "/anywhere")
    monkeypatch.setenv("PYTHONBREAKPOINT", "ray.util.rpdb._driver_set_trace")
    assert await kind_of(DOWNLOAD) is PreparedWorker


async def test_other_targets_are_not() -> None:
    assert await kind_of(OTHER) is subprocess.Popen


async def test_an_import_path_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    assert await kind_of(FUNCTION) is subprocess.Popen


@pytest.mark.usefixtures("fewer_files")
async def test_limits_of_its_own() -> None:
    assert await kind_of(FUNCTION) is subprocess.Popen
