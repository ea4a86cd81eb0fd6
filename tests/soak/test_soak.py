"""A short form of the soak: all dialects and manners, and an engine that is killed once."""

import signal
from pathlib import Path

import pytest

from tests.soak.hostile import Harm
from tests.soak.report import report, wrong_of_probes
from tests.soak.soak import Plan, soak

# Too short to tell whether memory is flat: the libraries still load what they need at first use, and pools grow.
PLAN = Plan(
    6,
    clients=12,
    pause=1,
    per_dialect=1,
    warm_up=0.2,
    memory_bound=200,
    slack=4,
    faults=(signal.SIGKILL,),
    max_faults=1,
    rest=1,
    harm=Harm(length=200_000, connections=20, stays=(0, 0.3)),
)
PROBE_BOUND = 500  # milliseconds, on a machine that is busy with other tests


@pytest.mark.timeout(400)  # on a machine that is busy with other tests, too
async def test_a_short_soak(tmp_path: Path) -> None:
    found = await soak(PLAN, tmp_path)
    assert found.wrong == [], "".join(found.log)
    assert [*wrong_of_probes(found, PROBE_BOUND)] == []
    assert (len(found.killed), found.stopped) == (1, [])
    assert len(found.tally.answered) > 10
    assert len(found.tally.left) > 3
    assert f"| answers that were compared | {sum(found.tally.answered.values())} |" in report(found)
