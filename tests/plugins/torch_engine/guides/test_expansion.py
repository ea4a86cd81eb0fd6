import time

import pytest

from lmi_plugins.torch_engine.guides.isolated.expansion import MAX_SIZE, expanded_size


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("a+b*c?", 3),
        ("[a-z]{2,5}", 5),
        ("ab{3}", 4),
        ("ab{3,}c", 5),
        ("(ab){3}", 6),
        ("(?:a|bc){1,4}", 16),  # the mark of the group counts too
        (r"\d{4}-\d{2}", 7),
        (r"a\{3}", 4),
        (r"[\]{9}]{2}", 2),
        ("[]{9}]{2}", 2),
        ("(((.{1,99}){1,99}){1,99}){1,99}", 99**4),
        ("a{" + "9" * 5000 + "}", 10**9),
        ("(" * 9 + "a" + "){99}" * 9, MAX_SIZE),
        ("a{x}", 4),
        ("(a", 1),
        ("a)", 1),
    ],
)
def test_expanded_size(pattern: str, size: int) -> None:
    assert expanded_size(pattern) == size


@pytest.mark.parametrize("part", ["(", "[", "{", "\\", "a{9}", "[^", "({9}"])
def test_takes_time_in_proportion_to_the_pattern(part: str) -> None:
    begun = time.process_time()
    expanded_size(part * 50_000)
    assert time.process_time() - begun < 5
