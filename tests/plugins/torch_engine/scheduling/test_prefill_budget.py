from dataclasses import dataclass
from typing import Any

import pytest

from lmi_plugins.torch_engine.scheduling.prefill_budget import BLOCK, INITIAL_TOKENS, MIN_TOKENS, PrefillBudget

MAX_TOKENS = 512


@dataclass
class Tokens:
    """A stand-in for a chunk, with the fields that the budget reads."""

    count: int
    num_draft_tokens: int = 0

    def __len__(self) -> int:
        return self.count


def record(budget: PrefillBudget, seconds: float, *counts: int) -> None:
    chunks: Any = [Tokens(count) for count in counts]
    budget.record(chunks, seconds)


def test_all_at_once_where_nobody_waits() -> None:
    budget = PrefillBudget(MAX_TOKENS)
    record(budget, 0.01, 1)
    record(budget, 1.0, 1, 100)
    assert budget.tokens(0, 3) == MAX_TOKENS


def test_all_that_the_options_allow_on_a_gpu() -> None:
    budget = PrefillBudget(MAX_TOKENS, on_gpu=True)
    record(budget, 0.01, 1)
    record(budget, 1.0, 1, 100)
    assert budget.tokens(4, 1) == MAX_TOKENS


def test_cautious_while_nothing_is_known() -> None:
    assert PrefillBudget(MAX_TOKENS).tokens(4, 1) == INITIAL_TOKENS - 4
    assert PrefillBudget(10).tokens(4, 1) == 10


@pytest.mark.parametrize(
    ("decode_seconds", "token_seconds", "tokens"),
    [
        (0.010, 0.00101, 128),
        (0.010, 0.0001, MAX_TOKENS),
        (0.010, 0.01, MIN_TOKENS + 4),
        (0.050, 0.0025, 44),
        (0.100, 0.001, 64),
        (0.2, 0.001, 192),
    ],
)
def test_a_step_takes_a_fixed_time_or_twice_as_long(decode_seconds: float, token_seconds: float, tokens: int) -> None:
    """`tokens` is the number of all tokens of the step: of prompts, and one for each of four streams."""
    budget = PrefillBudget(MAX_TOKENS)
    for _ in range(60):
        record(budget, decode_seconds, 1, 1, 1)
        record(budget, decode_seconds + 50 * token_seconds, 1, 1, 50)
        record(budget, decode_seconds + 5 * token_seconds, 1, 5)  # too few to tell anything
    assert budget.tokens(4, 1) + 4 == pytest.approx(tokens, abs=1)
    unnoticed = min(MAX_TOKENS, max(MIN_TOKENS, decode_seconds / token_seconds))
    assert unnoticed - BLOCK < budget.tokens(4, 0) <= unnoticed + 1


def test_rows_that_begin_another_block_wait_for_the_next_step() -> None:
    budget = PrefillBudget(2 * BLOCK)
    for _ in range(60):
        record(budget, 0.010, 1)
        record(budget, 0.010 + 50e-6, 1, 50)
    assert budget.tokens(10, 1) == 2 * BLOCK - 10
    assert budget.tokens(BLOCK - 10, 1) == BLOCK + 10
    assert budget.tokens(3 * BLOCK - 1, 1) == BLOCK + 1
    assert PrefillBudget(10).tokens(BLOCK - 5, 1) == 10


def test_follows_what_changes() -> None:
    budget = PrefillBudget(MAX_TOKENS)
    for _ in range(60):
        record(budget, 0.010, 1)
        record(budget, 0.020, 1, 100)
    for _ in range(60):
        record(budget, 0.020, 1)
        record(budget, 0.120, 1, 100)
    assert budget.tokens(4, 1) == 128 - 4


def test_many_prompts_that_wait_for_few_streams_get_more() -> None:
    budget = PrefillBudget(MAX_TOKENS)
    assert budget.tokens(1, 3) == 3 * INITIAL_TOKENS - 1
    for _ in range(60):
        record(budget, 0.100, 1)
        record(budget, 0.200, 1, 100)
    assert budget.tokens(5, 5) + 5 == 64
    assert budget.tokens(5, 15) + 5 == 256
    assert budget.tokens(1, 15) + 1 == MAX_TOKENS
