"""Tables in pages of the documentation, each between marks: `<!-- name -->` and `<!-- end -->`."""

import re
from collections.abc import Iterable, Mapping, Sequence

MARK = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(text: str, tables: Mapping[str, str]) -> str:
    """Return the page with the table of each name put between its marks."""
    return MARK.sub(lambda mark: f"{mark[1]}{tables[mark[2]]}{mark[3]}", text)


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (heading, ["---"] * len(heading), *rows))
