import random
from typing import Literal

import pytest
import torch

from lmi_core.generation.hypotheses import Hypotheses


def hypotheses(
    num_beams: int = 2,
    length_penalty: float = 1.0,
    early_stopping: bool | Literal["never"] = False,
    longest: int = 10,
) -> Hypotheses[str]:
    return Hypotheses(num_beams, length_penalty, early_stopping, longest)


def test_the_best_by_their_mean_log_prob() -> None:
    found = hypotheses()
    found.add("short", -2.0, 1)
    found.add("long", -4.0, 4)
    assert found.best == ["long", "short"]
    found.add("middle", -3.0, 2)
    assert found.best == ["long", "middle"]
    found.add("as good as the last", -3.0, 2)
    assert found.best == ["long", "middle"]


@pytest.mark.parametrize(("length_penalty", "best"), [(0.0, "short"), (2.0, "long"), (-1.0, "short")])
def test_length_penalty(length_penalty: float, best: str) -> None:
    found = hypotheses(1, length_penalty)
    found.add("short", -2.0, 2)
    found.add("long", -3.0, 4)
    assert found.best == [best]


def test_scores_are_those_of_float32() -> None:
    numbers = random.Random(0)
    for _ in range(200):
        score = float(torch.tensor(-40 * numbers.random(), dtype=torch.float32))
        length, penalty = numbers.randint(1, 3000), numbers.uniform(-10, 10)
        expected = float(torch.tensor(score, dtype=torch.float32) / length**penalty)
        assert hypotheses(1, penalty)._normalize(score, length) == expected


def test_goes_on_until_there_are_as_many_as_beams() -> None:
    for early_stopping in (False, True):
        found = hypotheses(early_stopping=early_stopping)
        found.add("a", -1.0, 1)
        assert found.may_improve(-100.0, 2)


@pytest.mark.parametrize(
    ("early_stopping", "length_penalty", "score", "expected"),
    [
        (True, 1.0, -0.1, False),
        (False, 1.0, -5.9, True),
        (False, 1.0, -6.1, False),
        ("never", 1.0, -19.9, True),  # as if it went on to the longest
        ("never", 1.0, -20.1, False),
        ("never", -1.0, -0.4, True),  # shorter is better, and it cannot get shorter
        ("never", -1.0, -0.7, False),
    ],
)
def test_goes_on_while_it_may_find_a_better_one(
    early_stopping: bool | Literal["never"], length_penalty: float, score: float, expected: bool
) -> None:
    found = hypotheses(1, length_penalty, early_stopping)
    found.add("a", -2.0, 1)
    assert found.may_improve(score, 3 if length_penalty == 1.0 else 4) is expected
