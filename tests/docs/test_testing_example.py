"""The tests in docs/how_to/testing.md, run by pytest as its reader runs them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import page

PAGE = page("testing.md").read_text()


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    # The plugins are found where they are installed anew; here, under their names, `-p` does the same without others.
    plugins = ("-p", "no:cacheprovider", "-p", "lmi_handlers.testing", "-p", "asyncio")
    options = ("-W", "error", "-m", "pytest", "-q", *plugins, "-o", "asyncio_default_fixture_loop_scope=function")
    return subprocess.run(
        [sys.executable, *options, str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment,
    )


@pytest.mark.slow
def test_example(tmp_path: Path) -> None:
    plain, asynchronous = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "test_shout.py").write_text(plain)
    (tmp_path / "test_client.py").write_text(asynchronous)
    missing = run(tmp_path)
    assert "shout.txt is missing: run with LMI_WRITE_GOLDEN=1 to write it" in missing.stdout
    assert "3 passed" in run(tmp_path, LMI_WRITE_GOLDEN="1").stdout
    assert (tmp_path / "golden" / "shout.txt").read_text() == "200\ntext/plain; charset=utf-8\n\nONE TWO"
    assert "3 passed" in run(tmp_path).stdout
    (tmp_path / "golden" / "shout.txt").write_text("200\ntext/plain; charset=utf-8\n\nONE")
    assert "\n-ONE\n+ONE TWO\n" in run(tmp_path).stdout
