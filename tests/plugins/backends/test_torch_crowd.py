"""A crowd that a full server refuses: those that it has admitted keep their throughput."""

from pathlib import Path

import pytest

from tests.benchmarks.bench_crowd import measure

CROWD = 2000  # clients, who ask all at once, and again as soon as they may
SHARE = 0.25  # of the throughput without them: refusals and the crowd need processors too, which other tests keep busy
ATTEMPTS = 3


@pytest.mark.timeout(400)
async def test_the_admitted_keep_their_throughput(tmp_path: Path) -> None:
    shares = list[float]()
    while len(shares) < ATTEMPTS and (not shares or shares[-1] < SHARE):
        found = await measure(tmp_path / str(len(shares)), CROWD, rounds=1, seconds=2)
        assert found.refused >= CROWD
        assert found.answered == 0
        shares.append(found.throughput)
    assert shares[-1] >= SHARE, shares
