"""Several sequences of one request."""

import math
from typing import Any

import pytest
import torch

from lmi_core.errors import GenerationFailed, InvalidParameter
from lmi_core.generation.output import GenerationStep, Token
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.results import Result
from lmi_plugins.torch_engine.sequences.sequence import Sequence
from tests.plugins.torch_engine.conftest import ModelDirectory
from tests.plugins.torch_engine.tiny_models import BY_ROW, ids, make_engine, request, run

PROMPT = [5, 9, 200, 31, 77]


def by_sequence(results: list[Result]) -> dict[int, list[Token]]:
    tokens: dict[int, list[Token]] = {}
    for result in results:
        assert isinstance(result, GenerationStep), result
        tokens.setdefault(result.sequence_index, []).extend(result.tokens)
    return tokens


def ids_by_sequence(results: list[Result]) -> list[list[int]]:
    return [[token.id for token in tokens] for _, tokens in sorted(by_sequence(results).items())]


@pytest.mark.parametrize("architecture", ["llama", BY_ROW[0]])
def test_each_is_drawn_by_itself_and_from_the_seed(architecture: str, model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory(architecture), max_batch_size=3)
    several = request("a", PROMPT, max_new_tokens=12, temperature=1.0, seed=7, num_samples=5)
    first = ids_by_sequence(run(engine, several)["a"])
    assert len({tuple(each) for each in first}) == 5
    assert [len(each) for each in first] == [12] * 5
    assert ids_by_sequence(run(engine, several, request("b", PROMPT, temperature=1.0))["a"]) == first
    alone = request("a", PROMPT, max_new_tokens=12, temperature=1.0, seed=7)
    assert ids(run(engine, alone)["a"]) == first[0]


def test_neighbouring_seeds_share_no_sequence(engine: Engine) -> None:
    requests = [
        request(str(seed), PROMPT, max_new_tokens=12, temperature=1.0, seed=seed, num_samples=3) for seed in (7, 8, 9)
    ]
    results = run(engine, *requests)
    drawn = [tuple(each) for result in results.values() for each in ids_by_sequence(result)]
    assert len(set(drawn)) == len(drawn) == 9


def test_every_sequence_has_a_finish_reason_of_its_own(engine: Engine) -> None:
    free = ids_by_sequence(
        run(engine, request("a", PROMPT, max_new_tokens=20, temperature=1.0, seed=3, num_samples=3))["a"]
    )
    stop = next(token_id for token_id in free[1][2:] if token_id not in free[0] + free[2])
    asked = request(
        "a", PROMPT, max_new_tokens=20, temperature=1.0, seed=3, num_samples=3, stop_token_sequences=[[stop]]
    )
    results = run(engine, asked)["a"]
    steps = [result for result in results if isinstance(result, GenerationStep) and result.finish_reason]
    assert {step.sequence_index: step.finish_reason for step in steps} == {
        0: "length",
        1: "stop_sequence",
        2: "length",
    }
    assert ids_by_sequence(results)[1] == free[1][: free[1].index(stop) + 1]
    assert engine.pool.free == engine.pool.size


def test_the_prompt_is_told_of_once(engine: Engine) -> None:
    asked = request("a", PROMPT, max_new_tokens=3, temperature=1.0, num_samples=3, prompt_log_probs=True)
    results = run(engine, asked)["a"]
    prefills = [result.prefill for result in results if isinstance(result, GenerationStep) and result.prefill]
    assert [[token.id for token in prefill] for prefill in prefills] == [PROMPT]


def test_abort_ends_them_all(model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"), max_batch_size=2)
    engine.add(request("a", PROMPT, max_new_tokens=50, temperature=1.0, num_samples=4))
    for _ in range(3):
        engine.step()
    engine.abort("a")
    assert not engine.has_work
    assert engine.pool.free == engine.pool.size


def test_one_that_fails_fails_the_request_once(
    model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(model_directory("llama"))
    sample = engine.sampler.sample

    def fail(logits: torch.Tensor, sequences: list[Sequence], *further: Any) -> tuple[torch.Tensor, torch.Tensor]:
        ids, log_probs = sample(logits, sequences, *further)
        for row, sequence in enumerate(sequences):
            if sequence.request_id == "bad" and sequence.index > 0:
                log_probs[row] = math.nan
        return ids, log_probs

    monkeypatch.setattr(engine.sampler, "sample", fail)
    results = run(
        engine,
        request("bad", PROMPT, max_new_tokens=5, temperature=1.0, num_samples=4),
        request("good", PROMPT, max_new_tokens=5),
    )
    assert [type(result) for result in results["bad"]].count(GenerationFailed) == 1
    assert isinstance(results["bad"][-1], GenerationFailed)
    assert len(ids(results["good"])) == 5
    assert engine.pool.free == engine.pool.size


def test_none_at_all_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidParameter, match="the number of sequences must be at least 1"):
        engine.add(request("a", PROMPT, num_samples=0))
