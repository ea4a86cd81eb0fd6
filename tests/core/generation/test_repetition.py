"""Runs of tokens that come several times in a row."""

import random

import pytest

from lmi_core.generation.repetition import ends_in_repetition


@pytest.mark.parametrize(
    ("token_ids", "shortest", "longest", "count", "expected"),
    [
        ([1, 2, 2], 0, 1, 2, True),
        ([1, 2, 2], 2, 4, 2, False),
        ([2, 2, 1], 0, 1, 2, False),
        ([9, 1, 2, 3, 1, 2, 3], 1, 3, 2, True),
        ([9, 1, 2, 3, 1, 2, 3], 1, 2, 2, False),
        ([9, 1, 2, 3, 1, 2, 3], 1, 3, 3, False),
        ([1, 2, 1, 2, 1, 2], 2, 2, 3, True),
        ([1, 2, 1, 2, 1, 2], 0, 0, 3, False),
        ([], 1, 3, 2, False),
    ],
)
def test_ends_in_repetition(token_ids: list[int], shortest: int, longest: int, count: int, expected: bool) -> None:
    assert ends_in_repetition(token_ids, shortest, longest, count) is expected


def test_as_spelt_out() -> None:
    draw = random.Random(0)
    found = set()
    for _ in range(2000):
        token_ids = [draw.randrange(2) for _ in range(draw.randrange(12))]
        shortest, count = draw.randrange(4), draw.randrange(2, 4)
        longest = shortest + draw.randrange(3)
        expected = any(
            len(token_ids) >= size * count and token_ids[-size * count :] == token_ids[-size:] * count
            for size in range(max(shortest, 1), longest + 1)
        )
        assert ends_in_repetition(token_ids, shortest, longest, count) is expected
        found.add(expected)
    assert found == {True, False}
