"""A cached head changes what is computed, and no answer."""

import random
from typing import Any

import pytest

from lmi_core.generation.output import GenerationStep
from lmi_plugins.torch_engine.cache import kept_states
from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.cache.prefix_cache import PrefixCache
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.results import Result
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.test_engine_greedy import make_prompts
from tests.plugins.torch_engine.tiny_models import (
    PAGED,
    ids,
    make_engine,
    reference_ids,
    request,
    run,
    tokens,
)


def cache_of(engine: Engine) -> PrefixCache:
    assert engine.prefix_cache is not None
    return engine.prefix_cache


def cached_counts(results: list[Result]) -> list[int | None]:
    """Return what each step of a request says of the cache."""
    return [result.cached_tokens for result in results if isinstance(result, GenerationStep)]


def test_only_what_follows_the_head_is_computed(model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"), max_prefill_tokens=BLOCK_SIZE)
    (head,) = make_prompts([4 * BLOCK_SIZE])
    for tail, steps, cached in (([5], 5, 0), ([6, 7], 1, len(head)), ([], 1, len(head) - BLOCK_SIZE)):
        before = cache_of(engine).cached_tokens
        engine.add(request("a", head + tail, max_new_tokens=2))
        taken = 1
        while not engine.step():
            taken += 1
        assert (taken, cache_of(engine).cached_tokens - before) == (steps, cached)
        while engine.has_work:
            engine.step()
    assert cache_of(engine).prompt_tokens == 3 * len(head) + 3
    assert engine.pool.free == engine.pool.size


@pytest.mark.parametrize("architecture", PAGED)
def test_answers_are_the_same(
    architecture: str, model_directory: ModelDirectory, reference: ReferenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_states, "LEAST_GAIN", 1)
    engine = make_engine(model_directory(architecture), max_prefill_tokens=24)
    (head,) = make_prompts([3 * BLOCK_SIZE + 4])
    prompts = [head + tail for tail in make_prompts([1, 9, 25], seed=1)]
    expected = [reference_ids(reference(architecture), prompt, 12) for prompt in prompts]
    for _ in range(2):
        requests = [request(str(i), prompt, max_new_tokens=12) for i, prompt in enumerate(prompts)]
        results = run(engine, *requests)
        assert [ids(results[each.request_id]) for each in requests] == expected
    assert cache_of(engine).cached_tokens >= 3 * len(head) - 3 * BLOCK_SIZE


@pytest.mark.parametrize("asked", [{}, {"num_samples": 3, "temperature": 1.0}, {"num_beams": 2}])
def test_a_request_is_told_once_what_was_found(asked: dict[str, Any], model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"))
    (prompt,) = make_prompts([2 * BLOCK_SIZE + 1])
    for cached in (0, 2 * BLOCK_SIZE):
        steps = run(engine, request("a", prompt, max_new_tokens=3, **asked))["a"]
        assert [count for count in cached_counts(steps) if count is not None] == [cached]
        first = steps[cached_counts(steps).index(cached)]
        assert isinstance(first, GenerationStep)
        assert first.sequence_index == 0


def test_a_preempted_request_does_not_count_its_own_blocks(model_directory: ModelDirectory) -> None:
    directory = model_directory("llama")
    roomy = make_engine(directory)
    engine = make_engine(directory, kv_cache_memory=6 * roomy.limits.cache_bytes // roomy.pool.size)
    requests = [request(str(i), ids, max_new_tokens=40) for i, ids in enumerate(make_prompts([20, 36]))]
    results = run(engine, *requests)
    assert cache_of(engine).cached_tokens > 0, "one was preempted"
    assert [cached_counts(results[each.request_id]).count(0) for each in requests] == [1, 1]
    assert {count for each in requests for count in cached_counts(results[each.request_id])} == {0, None}


def test_requests_of_another_salt_find_nothing(model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"))
    (prompt,) = make_prompts([2 * BLOCK_SIZE + 1])
    found = []
    for salt in ("a", "b", "a", None, None):
        before = cache_of(engine).cached_tokens
        run(engine, request("a", prompt, max_new_tokens=1, cache_salt=salt))
        found.append(cache_of(engine).cached_tokens - before)
    assert found == [0, 0, 2 * BLOCK_SIZE, 0, 2 * BLOCK_SIZE]


def test_what_was_generated_is_found_too(model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    engine = make_engine(model_directory("llama"))
    (prompt,) = make_prompts([10])
    answer = ids(run(engine, request("a", prompt, max_new_tokens=30))["a"])
    chat = prompt + answer + [9, 8, 7]
    assert ids(run(engine, request("b", chat, max_new_tokens=12))["b"]) == reference_ids(reference("llama"), chat, 12)
    assert cache_of(engine).cached_tokens == 2 * BLOCK_SIZE


@pytest.mark.parametrize("parameters", [{"prompt_log_probs": True}, {"prompt_logits": True}])
def test_what_is_told_of_the_prompt_is_computed(parameters: dict[str, Any], model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"))
    asked = request("a", [7, 8] * BLOCK_SIZE, max_new_tokens=2, **parameters)
    first, second = (run(engine, asked)["a"] for _ in range(2))
    for begun in (first[0], second[0]):
        assert isinstance(begun, GenerationStep)
        begun.queue_time = None  # which differs
    assert first == second
    assert cache_of(engine).cached_tokens == 0
    run(engine, request("a", [7, 8] * BLOCK_SIZE, max_new_tokens=2))
    assert cache_of(engine).cached_tokens == BLOCK_SIZE


def test_a_preempted_sequence_finds_its_own_blocks(model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    directory = model_directory("llama")
    roomy = make_engine(directory)
    engine = make_engine(directory, kv_cache_memory=6 * roomy.limits.cache_bytes // roomy.pool.size)
    requests = [request(str(i), ids, max_new_tokens=40) for i, ids in enumerate(make_prompts([20, 36]))]
    results = run(engine, *requests)
    for each in requests:
        assert ids(results[each.request_id]) == reference_ids(reference("llama"), each.prompt_ids, 40)
    assert cache_of(engine).cached_tokens > 0
    assert engine.pool.free == engine.pool.size == 6


def test_heads_go_when_others_need_the_room(model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    directory = model_directory("llama")
    roomy = make_engine(directory)
    engine = make_engine(directory, kv_cache_memory=8 * roomy.limits.cache_bytes // roomy.pool.size)
    numbers = random.Random(2)
    prompts = make_prompts([50, 60, 70], seed=2)
    for number in range(30):
        prompt = numbers.choice(prompts)[: numbers.choice([20, 40, 70])]
        results = run(engine, request(str(number), prompt, max_new_tokens=5))[str(number)]
        assert ids(results) == reference_ids(reference("llama"), prompt, 5)
    assert engine.pool.free == engine.pool.size == 8
    assert cache_of(engine).cached_tokens > 0


def test_can_be_switched_off(model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"), enable_prefix_caching=False)
    results = [run(engine, request("a", [7] * 40, max_new_tokens=5))["a"] for _ in range(2)]
    assert engine.prefix_cache is None
    assert tokens(results[0]) == tokens(results[1])
    assert [cached_counts(result) for result in results] == [[0, None, None, None, None]] * 2


def test_models_that_are_computed_row_by_row_have_none(model_directory: ModelDirectory) -> None:
    assert make_engine(model_directory("trocr")).prefix_cache is None
