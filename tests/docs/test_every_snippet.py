"""No command and no code on any page escapes the tests."""

import re

import pytest

from tests.docs.pages import PAGES, ROOT
from tests.docs.snippets import KINDS, OF_THEIR_OWN, SESSIONS, SNIPPETS, Snippet

REASON = re.compile(r"[a-z].{10,}")


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.name)
def test_snippet_is_run_or_says_why_not(snippet: Snippet) -> None:
    ways = [
        bool(snippet.reason_not_to_run),
        bool(snippet.own_test),
        snippet.in_session and not snippet.reason_not_to_run,
        snippet.language in KINDS and not snippet.own_test and not snippet.reason_not_to_run and not snippet.in_session,
    ]
    assert ways.count(True) == 1, f"{snippet.name}: ```{snippet.language} is run by no test, or by two"
    assert not snippet.reason_not_to_run or REASON.match(snippet.reason_not_to_run)


def test_every_fence_is_a_snippet() -> None:
    fences = sum(len(re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE)) for page in PAGES)
    assert fences == 2 * len(SNIPPETS)
    assert not any(re.search(r"^[ \t]+```", page.read_text(encoding="utf-8"), re.MULTILINE) for page in PAGES)


@pytest.mark.parametrize(("page", "language"), OF_THEIR_OWN)
def test_a_test_of_its_own_reads_the_page(page: str, language: str) -> None:
    assert any((snippet.page.name, snippet.language) == (page, language) for snippet in SNIPPETS)
    source = (ROOT / "tests" / "docs" / OF_THEIR_OWN[page, language]).read_text(encoding="utf-8")
    assert f'page("{page}")' in source
    assert f"```{language}" in source or f'"{language}"' in source


def test_every_session_has_steps() -> None:
    assert set(SESSIONS) <= {snippet.page.name for snippet in SNIPPETS}
