"""Generated pages are those that `make docs` would write."""

from lmi_core.plugins.loading import load_plugins
from tools.docs.container import tables
from tools.docs.pages import ROOT, generated_pages


def test_generated_pages_are_fresh() -> None:
    pages = generated_pages(load_plugins())
    assert len(pages) == 8
    assert [str(path.relative_to(ROOT)) for path, text in pages.items() if path.read_text("utf-8") != text] == []


def test_marked_tables_are_in_their_pages() -> None:
    assert all(table in (ROOT / "docs/how_to/container.md").read_text("utf-8") for table in tables().values())
    assert "| `lmi_requests_total` | counter |" in (ROOT / "docs/reference/metrics.md").read_text("utf-8")
