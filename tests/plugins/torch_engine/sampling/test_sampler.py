from typing import Any

import pytest
import torch

from lmi_plugins.torch_engine.sampling.processing import process
from lmi_plugins.torch_engine.sampling.sampler import Sampler
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from tests.plugins.torch_engine.bare_sequences import VOCABULARY, logits, sequence


def test_greedy_rows_take_the_best_whatever_the_others_do() -> None:
    rows = logits(3)
    sequences = [sequence(), sequence(temperature=5.0), sequence(temperature=1e-9)]
    ids, _ = Sampler().sample(rows, sequences)
    assert ids[[0, 2]].tolist() == rows.argmax(-1)[[0, 2]].tolist()


def test_greedy_rows_heed_the_penalty() -> None:
    row = torch.zeros(1, VOCABULARY)
    row[0, 9], row[0, 30] = 4.0, 3.0
    ids, log_probs = Sampler().sample(row, [sequence(repetition_penalty=2.0)])
    assert ids.tolist() == [30]
    assert log_probs[0].item() == pytest.approx(row.log_softmax(-1)[0, 30].item())


def test_log_probs_are_of_the_models_own_distribution() -> None:
    rows = logits(2)
    ids, log_probs = Sampler().sample(rows, [sequence(temperature=0.1, top_k=3, repetition_penalty=3.0)] * 2)
    expected = rows.log_softmax(-1).gather(1, ids[:, None])[:, 0]
    assert torch.allclose(log_probs, expected, atol=1e-6)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"top_k": 8},
        {"top_p": 0.8},
        {"top_k": 20, "top_p": 0.7},
        {"min_p": 0.1},
        {"typical_p": 0.7},
        {"presence_penalty": 1.0, "logit_bias": {3: 2.0, 5: -2.0}},
    ],
)
def test_samples_are_distributed_as_the_scores_say(parameters: dict[str, Any]) -> None:
    draws = 20_000
    row = logits(1, seed=3)[:, :20] / 2
    drawn = sequence(temperature=1.2, seed=11, **parameters)
    expected = process(row, [drawn])[0].softmax(-1) * draws
    ids, _ = Sampler().sample(row.expand(draws, -1), [drawn] * draws)
    observed = torch.bincount(ids, minlength=20)
    possible = expected > 0
    assert observed[~possible].sum() == 0
    statistic = ((observed - expected)[possible] ** 2 / expected[possible]).sum().item()
    freedom = int(possible.sum()) - 1
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


def test_a_row_that_is_left_no_token_shows_in_its_log_prob() -> None:
    hopeless: dict[str, Any] = {"bad_sequences": [[i] for i in range(VOCABULARY)]}
    rows = [sequence(), sequence(**hopeless), sequence(temperature=1.0, **hopeless)]
    _, log_probs = Sampler().sample(logits(3), rows)
    assert log_probs.isfinite().tolist() == [True, False, False]


def test_a_seed_decides_whatever_else_is_in_the_batch() -> None:
    def draw(*others: Sequence) -> list[int]:
        seeded, sampler, drawn = sequence(temperature=1.5, seed=5), Sampler(), []
        for step in range(20):
            row = logits(1, seed=step)
            ids, _ = sampler.sample(torch.cat([row, logits(len(others))]), [seeded, *others])
            drawn.append(int(ids[0]))
        return drawn

    assert draw() == draw(sequence(temperature=1.0), sequence(temperature=1.0, seed=5))


def test_unseeded_rows_differ() -> None:
    ids, _ = Sampler().sample(torch.zeros(64, VOCABULARY), [sequence(temperature=1.0)] * 64)
    assert len(set(ids.tolist())) > 10


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("parameters", [{}, {"temperature": 1.0, "top_p": 0.5, "top_k": 4, "repetition_penalty": 2.0}])
def test_rows_that_are_no_numbers_show_in_their_log_prob(value: float, parameters: dict[str, Any]) -> None:
    rows = logits(3)
    rows[1, 7] = value
    _, log_probs = Sampler().sample(rows, [sequence(**parameters) for _ in range(3)])
    assert log_probs.isfinite().tolist() == [True, False, True]


def test_tokens_ruled_out_by_the_model_are_never_drawn() -> None:
    rows = torch.full((1, VOCABULARY), float("-inf"))
    rows[0, [10, 40]] = 0.0
    ids, log_probs = Sampler().sample(rows.expand(500, -1), [sequence(temperature=1.0)] * 500)
    assert set(ids.tolist()) == {10, 40}
    assert log_probs.isfinite().all()
