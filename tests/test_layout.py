"""Tests lie where what they test lies, in files that can be read at a glance."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {
    "core": ROOT / "core" / "lmi_core",
    "djl_python": ROOT / "handlers" / "djl_python",
    "handlers": ROOT / "handlers" / "lmi_handlers",
    "plugins": ROOT / "plugins" / "lmi_plugins",
}
MAX_LINES = 400


@pytest.mark.parametrize("tree", SOURCES)
def test_every_folder_of_tests_has_one_of_sources(tree: str) -> None:
    base = ROOT / "tests" / tree
    folders = {path.parent.relative_to(base) for path in base.rglob("test_*.py")}
    assert folders
    assert {str(folder) for folder in folders if not (SOURCES[tree] / folder).is_dir()} == set()


def test_no_file_of_tests_is_long() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py")}
    assert {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > MAX_LINES} == {}
