"""The page of promises names tests that exist, and the reports of soaks without a wrong answer."""

import ast
import re

from tests.docs.pages import DOCUMENTS, ROOT

HEADING = "## The latest soak"  # as `python -m tests.soak --write` writes it
PAGE = DOCUMENTS["reliability.md"]
ROWS = [
    row
    for table in PAGE.split("| fault | outcome | tests |\n|---|---|---|\n")[1:]
    for row in table.partition("\n\n")[0].splitlines()
]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_every_test_that_is_named_exists() -> None:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    trees = {path: ast.parse((ROOT / path).read_text(encoding="utf-8")) for path, _ in NAMED}
    names = {path: {node.name for node in tree.body if isinstance(node, kinds)} for path, tree in trees.items()}
    assert NAMED
    assert [(path, name) for path, name in NAMED if name not in names[path]] == []


def test_every_promise_names_a_test() -> None:
    assert len(ROWS) > 15
    assert [row for row in ROWS if not re.search(r"\| (`tests/[\w/]+\.py::\w+`(, )?)+ \|$", row)] == []


def test_the_reports_are_of_soaks_without_wrong_answers() -> None:
    reports = PAGE.split(f"\n{HEADING}")[1:]
    assert len(reports) == 2
    assert all("| wrong, lost or doubled ones | 0 |" in report for report in reports)
