"""Tests lie where what they test lies, and every file can be read at a glance."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {
    "core": ROOT / "core" / "lmi_core",
    "djl_python": ROOT / "handlers" / "djl_python",
    "handlers": ROOT / "handlers" / "lmi_handlers",
    "lmi": ROOT / "handlers" / "lmi",
    "plugins": ROOT / "plugins" / "lmi_plugins",
    "tools": ROOT / "tools",
}
MAX_LINES = 400


@pytest.mark.parametrize("tree", SOURCES)
def test_every_folder_of_tests_has_one_of_sources(tree: str) -> None:
    base = ROOT / "tests" / tree
    folders = {path.parent.relative_to(base) for path in base.rglob("test_*.py")}
    assert folders
    assert {str(folder) for folder in folders if not (SOURCES[tree] / folder).is_dir()} == set()


@pytest.mark.parametrize("folder", ["core", "handlers", "plugins", "tests", "examples", "tools"])
def test_no_file_is_long(folder: str) -> None:
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert lines
    assert {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > MAX_LINES} == {}
