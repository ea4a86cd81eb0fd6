"""The countdown of a limit on the reasoning: what must come, after what was generated."""

import pytest

from lmi_core.generation.reasoning_budget import ReasoningBudget, ReasoningCountdown

START, END, OTHER_END = [7], [8, 9, 8], [5]


def countdown(tokens: int, *, inside: bool = False) -> ReasoningCountdown:
    return ReasoningCountdown(ReasoningBudget(tokens=tokens, starts=[START], ends=[END, OTHER_END], inside=inside))


def generate(countdown: ReasoningCountdown, wanted: list[int]) -> list[int]:
    """Return the output of a model that wants to write `wanted`, with forced tokens in place of its own."""
    ids: list[int] = []
    for token_id in wanted:
        forced = countdown.forced_token(ids)
        ids.append(token_id if forced is None else forced)
    return ids


@pytest.mark.parametrize(
    ("tokens", "inside", "expected"),
    [
        (2, True, [1, 2, 8, 9, 8, 6, 1, 2]),
        (0, True, [8, 9, 8, 4, 5, 6, 1, 2]),
        (8, True, [1, 2, 3, 4, 5, 6, 1, 2]),
        (2, False, [1, 2, 3, 4, 5, 6, 1, 2]),
    ],
)
def test_the_end_is_forced_once(tokens: int, inside: bool, expected: list[int]) -> None:
    assert generate(countdown(tokens, inside=inside), [1, 2, 3, 4, 5, 6, 1, 2]) == expected


def test_it_counts_from_the_start_that_is_generated() -> None:
    assert generate(countdown(2), [1, *START, 2, 3, 4, 4, 4, 4]) == [1, *START, 2, 3, *END, 4]
    assert generate(countdown(0), [*START, 2, 3, 4, 4]) == [*START, *END, 4]


def test_a_start_that_the_prompt_wrote_too_is_not_counted() -> None:
    assert generate(countdown(2, inside=True), [*START, 1, 2, 3, 3, 3, 3]) == [*START, 1, 2, *END, 3]
    assert generate(countdown(2, inside=True), [1, *START, 2, 2, 2, 2]) == [1, *START, *END, 2]


@pytest.mark.parametrize("end", [END, OTHER_END])
def test_an_end_by_itself_ends_the_count(end: list[int]) -> None:
    wanted = [1, *end, *START, 1, 2, 3, 4, 5, 6, 7]
    assert generate(countdown(len(end) + 1, inside=True), wanted) == wanted


def test_an_end_that_is_begun_is_completed() -> None:
    assert generate(countdown(2, inside=True), [1, 8, 3, 3, 3]) == [1, *END, 3]
    assert generate(countdown(2, inside=True), [8, 9, 3, 3, 3]) == [*END, 3, 3]


def test_tokens_before_the_reasoning_are_no_part_of_its_end() -> None:
    assert generate(countdown(0), [8, 9, *START, 1, 1, 1, 1]) == [8, 9, *START, *END, 1]


def test_several_tokens_at_once() -> None:
    """Several tokens arrive at once when an engine resumes a request."""
    assert countdown(2).forced_token([1, *START, 2, 3]) == END[0]
    assert countdown(2).forced_token([1, *START, 2, 3, *END]) is None
    assert countdown(9).forced_token([1, *START, 2, 3]) is None


def test_tokens_that_are_taken_back() -> None:
    counting = countdown(2)
    assert counting.forced_token([*START, 1, *OTHER_END]) is None
    assert counting.forced_token([*START, 1]) is None
    assert counting.forced_token([*START, 1, 2]) == END[0]
