"""No command and no code on any page escapes the tests."""

import re

from tests.docs.pages import PAGES, ROOT
from tests.docs.snippets import KINDS, OF_THEIR_OWN, SESSIONS, SNIPPETS, Snippet

REASON = re.compile(r"[a-z].{10,}")


def num_ways(snippet: Snippet) -> int:
    """The number of tests that run a snippet, or 1 for one that says why none does."""
    ways = [
        bool(snippet.reason_not_to_run),
        bool(snippet.own_test),
        snippet.in_session and not snippet.reason_not_to_run,
        snippet.language in KINDS and not snippet.own_test and not snippet.reason_not_to_run and not snippet.in_session,
    ]
    return ways.count(True)


def test_snippets_are_run_once_or_say_why_not() -> None:
    assert SNIPPETS
    assert [f"{each.name}: ```{each.language}" for each in SNIPPETS if num_ways(each) != 1] == []
    reasons = {each.name: each.reason_not_to_run for each in SNIPPETS if each.reason_not_to_run}
    assert {name: reason for name, reason in reasons.items() if not REASON.match(reason)} == {}


def test_every_fence_is_a_snippet() -> None:
    fences = sum(len(re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE)) for page in PAGES)
    assert fences == 2 * len(SNIPPETS)
    assert not any(re.search(r"^[ \t]+```", page.read_text(encoding="utf-8"), re.MULTILINE) for page in PAGES)


def test_tests_of_their_own_read_their_pages() -> None:
    assert set(OF_THEIR_OWN) <= {(snippet.page.name, snippet.language) for snippet in SNIPPETS}
    for (page, language), test in OF_THEIR_OWN.items():
        source = (ROOT / "tests" / "docs" / test).read_text(encoding="utf-8")
        assert f'page("{page}")' in source, test
        assert f"```{language}" in source or f'"{language}"' in source, test


def test_every_session_has_steps() -> None:
    assert set(SESSIONS) <= {snippet.page.name for snippet in SNIPPETS}
