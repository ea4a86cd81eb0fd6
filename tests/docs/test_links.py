"""Every link leads to a page that is there and to a heading of it, and every page is led to."""

import os
import re
from pathlib import Path

from tests.docs.pages import INDEX, PAGES, ROOT

KINDS = ("tutorial.md", "how_to", "reference", "explanation")


def links(page: Path) -> list[tuple[str, str]]:
    """Return the path and the anchor of each link to a file, as the page writes them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(\s*([^)\s]+)", prose) + re.findall(r"^\[[^\]]+\]: (\S+)", prose, re.MULTILINE)
    return [(path, anchor) for path, _, anchor in (each.partition("#") for each in targets) if ":" not in path]


def anchors(page: Path) -> set[str]:
    """Return the names that a page's headings can be linked by."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page: Path, path: str, anchor: str) -> bool:
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_links_lead_somewhere() -> None:
    found = [(page, *link) for page in PAGES for link in links(page)]
    assert found
    assert [(str(page), *link) for page, *link in found if not leads_somewhere(page, *link)] == []


def test_paths_that_are_named_exist() -> None:
    pattern = re.compile(r"`((?:core|handlers|plugins|tests|examples|docs|\.ci)/[\w/.]*)`")
    named = [(str(page), path) for page in PAGES for path in pattern.findall(page.read_text(encoding="utf-8"))]
    assert named
    assert [(page, path) for page, path in named if not (ROOT / path).exists()] == []


def linked_pages(page: Path) -> set[Path]:
    return {Path(os.path.normpath(page.parent / path)) for path, _ in links(page) if path.endswith(".md")}


def test_the_index_lists_every_page_and_the_readme_leads_to_it() -> None:
    assert linked_pages(INDEX) >= {path for path in PAGES if path.is_relative_to(INDEX.parent)} - {INDEX}
    assert linked_pages(INDEX) >= set(ROOT.glob("*.md")) - {ROOT / "README.md"}
    assert linked_pages(ROOT / "README.md") >= {INDEX}


def test_one_page_says_that_there_is_no_release_yet() -> None:
    told = [page.name for page in PAGES if "not on the Python package index" in page.read_text(encoding="utf-8")]
    assert told == ["install.md"]
    installs = [page for page in PAGES if re.search(r"pip install '?lmi-handlers", page.read_text(encoding="utf-8"))]
    assert [str(page) for page in installs if page.name != "CHANGELOG.md" and not leads_to_install(page)] == []


def leads_to_install(page: Path) -> bool:
    return page.name == "install.md" or any(path.endswith("install.md") for path, _ in links(page))


def test_the_readme_fits_on_a_screen_and_its_picture_is_small() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 35
    (picture,) = re.findall(r"!\[.+?\]\((.+?)\)", readme)
    assert (ROOT / picture).stat().st_size < 200_000


def test_the_index_lists_each_page_under_its_kind() -> None:
    _, *sections = re.split(r"^## ", INDEX.read_text(encoding="utf-8"), flags=re.MULTILINE)
    listed = [set(re.findall(r"^\| \[.+?\]\((tutorial\.md|\w+(?=/))", section, re.MULTILINE)) for section in sections]
    assert listed == [{kind} for kind in KINDS]


def test_messages_name_pages_that_exist() -> None:
    sources = [path for folder in ("core", "handlers", "plugins") for path in (ROOT / folder).rglob("*.py")]
    named = {name for path in sources for name in re.findall(r"docs/[\w/]+\.md", path.read_text(encoding="utf-8"))}
    assert named
    assert {name for name in named if not (ROOT / name).is_file()} == set()
