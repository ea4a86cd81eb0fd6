"""The pages of the documentation, each by its name."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
DOCUMENTS = {path.name: path.read_text(encoding="utf-8") for path in PAGES if path.name != "README.md"}


def page(name: str) -> Path:
    """Return the path of the page of this name, whichever kind of page it is."""
    (found,) = [path for path in PAGES if path.name == name]
    return found
