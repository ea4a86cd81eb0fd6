"""docs/benchmarks.md: a section for each benchmark, which writes its own."""

from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
SECTION = "\n## "


def write_section(text: str, page: Path = PAGE) -> None:
    """In place of the section of the same heading, or at the end. `text` begins with the heading."""
    head, *sections = page.read_text().rstrip().split(SECTION)
    new = text.strip().removeprefix(SECTION.strip()).strip()
    kept = {_heading(section): section.strip() for section in sections}
    kept[_heading(new)] = new
    page.write_text("\n".join([head.strip() + "\n", *(f"{SECTION.strip()} {each}\n" for each in kept.values())]))


def _heading(section: str) -> str:
    return section.partition("\n")[0].strip()
