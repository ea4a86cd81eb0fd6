import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lmi_core.texts.stop_matcher import StopMatcher


def held_by_definition(text: str, stops: Sequence[str]) -> int:
    return max((n for stop in stops for n in range(len(stop)) if text.endswith(stop[:n])), default=0)


@given(st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_matches_and_held_text_are_those_of_the_whole_text(numbers: random.Random) -> None:
    stops = ["".join(numbers.choices("ab", k=numbers.randint(1, 7))) for _ in range(4)]
    matcher, text = StopMatcher(stops), ""
    for _ in range(40):
        piece = "".join(numbers.choices("abc", [5, 5, 1], k=numbers.randint(0, 4)))
        ends = range(len(text) + 1, len(text) + len(piece) + 1)
        text += piece
        expected = {(end - len(stop), stop) for end in ends for stop in stops if text[:end].endswith(stop)}
        found = matcher.read(piece)
        assert {(match.offset + len(text), match.stop) for match in found} == expected
        assert all(match.length == len(match.stop) for match in found)
        assert matcher.held == held_by_definition(text, stops)


class Item:
    """An item that counts how often it is compared."""

    compared = 0

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        Item.compared += 1
        return isinstance(other, Item) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def comparisons(stop: str, text: str) -> int:
    Item.compared = 0
    matcher: Any = StopMatcher([[Item(character) for character in stop]])
    for character in text:
        matcher.read([Item(character)])
    return Item.compared


@pytest.mark.parametrize(
    ("stop", "text"),
    [("a" * 1000 + "b", "a" * 5000), ("ab" * 500 + "c", "ab" * 2500), ("a" * 500 + "b" + "a" * 500, "a" * 5000)],
)
def test_the_time_is_linear_however_much_matches(stop: str, text: str) -> None:
    assert comparisons(stop, text) <= 4 * (len(stop) + len(text))
