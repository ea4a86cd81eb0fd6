from pathlib import Path

import pytest

from tests.core.model_directories import Directory


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)
