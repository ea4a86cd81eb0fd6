"""Every client program, in its environment; docs/reference/clients.md says what they find."""

from collections.abc import Mapping

import pytest
import pytest_asyncio

from tests.clients.document import failures, page
from tests.clients.listing import ROOT, programs
from tests.clients.run_programs import Outcomes, run_programs

PROGRAMS = programs()
CASES = [(program.name, case.name) for program in PROGRAMS for case in program.cases]

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(1800),
]  # the first test waits for all programs


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcomes() -> Mapping[str, Outcomes]:
    return await run_programs(PROGRAMS)


@pytest.mark.parametrize(("program", "case"), CASES)
async def test_client(outcomes: Mapping[str, Outcomes], program: str, case: str) -> None:
    if raised := outcomes[program][case]:
        pytest.fail(raised, pytrace=False)


async def test_page(outcomes: Mapping[str, Outcomes]) -> None:
    """The page holds what passed: `make clients-page` writes it."""
    assert (ROOT / "docs" / "reference" / "clients.md").read_text(encoding="utf-8") == page(PROGRAMS, outcomes)


async def test_failures_are_told(outcomes: Mapping[str, Outcomes]) -> None:
    name, case = CASES[0]
    failed = {**outcomes, name: {**outcomes[name], case: "found 1, expected 2"}}
    assert failures(failed) == failures(outcomes) | {f"{name}.{case}": "found 1, expected 2"}
    assert page(PROGRAMS, failed) != page(PROGRAMS, outcomes)
