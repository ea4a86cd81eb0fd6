"""The sections of docs/explanation/benchmarks.md, each written by its benchmark."""

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "benchmarks.md"
SECTION = "\n## "


def write_section(text: str, page: Path = PAGE) -> None:
    """Write `text`, which begins with a heading, over the section of that heading, or at the end."""
    head, *sections = page.read_text().rstrip().split(SECTION)
    new = text.strip().removeprefix(SECTION.strip()).strip()
    kept = {_heading(section): section.strip() for section in sections}
    kept[_heading(new)] = new
    page.write_text("\n".join([head.strip() + "\n", *(f"{SECTION.strip()} {each}\n" for each in kept.values())]))


def _heading(section: str) -> str:
    return section.partition("\n")[0].strip()
