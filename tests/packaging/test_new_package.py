"""`lmi new ... --package`: packages that are built, installed and found, and whose tests pass."""

from pathlib import Path

import pytest

from lmi_handlers.cli.new_command import write_new
from tests.packaging.environment import Environment, build, unpacked

KINDS = ("formatter", "handler", "backend")


@pytest.mark.timeout(400)
def test_packages_of_all_kinds(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "environment")
    environment.install(wheel)
    said = {kind: write_new(kind, f"my_{kind}", tmp_path, package=True) for kind in KINDS}
    for kind in KINDS:
        sdist = build(tmp_path / f"my_{kind}", tmp_path / kind / "sdist", "sdist")
        own = build(unpacked(sdist, tmp_path / kind / "source"), tmp_path / kind / "wheel", "wheel")
        assert own.name == f"my_{kind}-0.1.0-py3-none-any.whl"
        environment.install(own)

    folders = [f"my_{kind}" for kind in KINDS]
    tests = environment.run("python", "-W", "error", "-m", "pytest", "-q", "-p", "no:asyncio", *folders, cwd=tmp_path)
    assert "5 passed" in tests.stdout, tests.stdout + tests.stderr
    listed = environment.run("lmi", "plugins", cwd=tmp_path).stdout
    for kind, words in said.items():
        assert f"my_{kind}" in listed
        (line,) = [line for line in words.splitlines() if line.startswith("  lmi try ")]
        tried = environment.run("lmi", *line.split()[1:], cwd=tmp_path)
        assert (tried.stdout[:4], tried.stderr) == ("200 ", ""), tried.stdout


def test_what_is_written(tmp_path: Path) -> None:
    words = write_new("formatter", "mine", tmp_path, package=True)
    assert f"pip install --editable '{tmp_path / 'mine'}[testing]'" in words
    files = {str(path.relative_to(tmp_path / "mine")) for path in (tmp_path / "mine").rglob("*") if path.is_file()}
    assert files == {
        ".gitignore",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/mine/__init__.py",
        "src/mine/py.typed",
        "tests/model/serving.properties",
        "tests/test_mine.py",
    }
