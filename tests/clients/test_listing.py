"""What client programs declare: which clients, in which environments, for which dialects."""

import ast
import json
import re
from pathlib import Path

import pytest

from tests.clients import listing
from tests.clients.listing import ENVIRONMENTS, FOLDER, NODE_ENVIRONMENT, TESTS_ENVIRONMENT, programs, sources
from tests.clients.programs.cases import equal, run


def test_every_program_declares_cases_for_a_pinned_client() -> None:
    found = programs()
    assert {program.name for program in found} == {f"{path.parent.name}.{path.stem}" for path in sources()}
    for program in found:
        names = [case.name for case in program.cases]
        assert len(names) == len(set(names)), program.name
        assert program.version, program.name


def test_every_environment_is_used() -> None:
    used = {program.environment for program in programs()} - {TESTS_ENVIRONMENT}
    assert (
        used == {path.stem for path in ENVIRONMENTS.glob("*.txt")} == {path.stem for path in ENVIRONMENTS.glob("*.in")}
    )


def test_every_case_in_javascript_is_found() -> None:
    for program in programs():
        if program.environment == NODE_ENVIRONMENT:
            source = (FOLDER / f"{program.name.replace('.', '/')}.mjs").read_text(encoding="utf-8")
            assert len(program.cases) == len(re.findall(r"\b(?:feature|fault)\(", source)), program.name


def test_an_unknown_decorator_is_reported() -> None:
    with pytest.raises(AssertionError, match="cases"):
        list(listing.list_cases(ast.parse("@cases('TGI', 'answers')\ndef generate() -> None: ...")))


def test_what_a_case_raises_is_its_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def right() -> None:
        equal(1, 1)

    async def wrong() -> None:
        equal("found", "expected")

    monkeypatch.setattr("tests.clients.programs.cases._CASES", {"right": right, "wrong": wrong})
    run(["right", "wrong"], tmp_path / "results.json")
    outcomes = json.loads((tmp_path / "results.json").read_text())
    assert outcomes["right"] is None
    assert "found 'found', expected 'expected'" in outcomes["wrong"]
