"""A crowd that a full server refuses: those that it has admitted keep their throughput."""

from pathlib import Path

import pytest

from tests.benchmarks.bench_crowd import measure

CROWD = 2000  # clients, who ask all at once, and again as soon as they may
SHARE = 0.25  # of the throughput without them: refusals and the crowd need processors too, which other tests keep busy
SECONDS = (2, 8, 24)  # of each attempt: a machine that does much else needs longer for the first answers to the crowd


@pytest.mark.timeout(400)
async def test_the_admitted_keep_their_throughput(tmp_path: Path) -> None:
    for seconds in SECONDS:
        found = await measure(tmp_path / str(seconds), CROWD, rounds=1, seconds=seconds)
        assert found.answered == 0
        if found.refused >= CROWD and found.throughput >= SHARE:
            return
    pytest.fail(f"of the throughput alone: {found.throughput}, while {found.refused} were refused")
