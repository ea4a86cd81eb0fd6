from tools.release import unready

CHANGELOG = "## [Unreleased]\n\n## [1.2.0] - 2026-11-26\n"
README = "[docs](https://example.org/docs)"
PROJECT = {"version": "1.2.0", "urls": {"Source": "https://example.org"}}


def test_ready() -> None:
    assert list(unready("1.2.0", PROJECT, CHANGELOG, README)) == []


def test_all_that_is_missing_is_told() -> None:
    assert list(unready("1.3.0", {"version": "1.3.0.dev0"}, CHANGELOG, "![it](docs/it.png) and [docs](docs/a.md)")) == [
        "pyproject.toml has the version 1.3.0.dev0, not 1.3.0",
        "CHANGELOG.md has no heading `## [1.3.0] - YYYY-MM-DD`",
        "pyproject.toml has no [project.urls] with the address of the repository as Source",
        "links of README.md that lead nowhere on the package index: docs/it.png, docs/a.md",
    ]
