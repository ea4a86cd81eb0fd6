"""Greedy text is transformers' own, token for token, whatever else runs and however the work is cut up."""

import random

import pytest
import torch

from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import EngineRequest
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import (
    BY_ROW,
    PAGED,
    VOCABULARY,
    ids,
    make_engine,
    reference_ids,
    request,
    run,
    tokens,
)

COUNT = 12  # tokens to generate


def make_prompts(lengths: list[int], seed: int = 0) -> list[list[int]]:
    numbers = random.Random(seed)
    return [[numbers.randrange(2, VOCABULARY) for _ in range(length)] for length in lengths]


def run_joining_at_random(engine: Engine, requests: list[EngineRequest], seed: int) -> dict[str, list[int]]:
    numbers = random.Random(seed)
    generated: dict[str, list[int]] = {each.request_id: [] for each in requests}
    waiting = list(requests)
    while waiting or engine.has_work:
        while waiting and numbers.random() < 0.3:
            engine.add(waiting.pop())
        for request_id, result in engine.step():
            generated[request_id] += ids([result])
    return generated


@pytest.mark.parametrize("architecture", PAGED + BY_ROW)
def test_alone_and_together(architecture: str, model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    prompts = make_prompts([30, 1, 17, 5])
    expected = [reference_ids(reference(architecture), prompt, COUNT) for prompt in prompts]
    engine = make_engine(model_directory(architecture))
    alone = [ids(run(engine, request("alone", prompt, max_new_tokens=COUNT))["alone"]) for prompt in prompts]
    assert alone == expected
    requests = [request(str(place), prompt, max_new_tokens=COUNT) for place, prompt in enumerate(prompts)]
    together = run(engine, *requests)
    assert [ids(together[each.request_id]) for each in requests] == expected


@pytest.mark.parametrize("architecture", PAGED + BY_ROW)
def test_log_probs_are_those_of_one_full_pass(
    architecture: str, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    engine = make_engine(model_directory(architecture), max_prefill_tokens=7)
    prompts = make_prompts([25, 40])
    requests = [request(str(place), prompt, max_new_tokens=COUNT) for place, prompt in enumerate(prompts)]
    results = run(engine, *requests)
    for each in requests:
        generated = tokens(results[each.request_id])
        sequence = each.prompt_ids + [token.id for token in generated]
        with torch.inference_mode():
            logits = reference(architecture)(torch.tensor([sequence])).logits[0].float()
        chosen = logits.log_softmax(-1)[len(each.prompt_ids) - 1 : -1].max(-1).values
        assert [token.log_prob for token in generated] == pytest.approx(chosen.tolist(), abs=1e-4)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gpt2", "gemma2", "gptj"])
def test_joining_and_leaving_at_random_steps(
    architecture: str, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    numbers = random.Random(1)
    prompts = make_prompts([numbers.randint(1, 40) for _ in range(12)], seed=1)
    requests = [request(str(i), prompt, max_new_tokens=numbers.randint(1, 20)) for i, prompt in enumerate(prompts)]
    engine = make_engine(model_directory(architecture), max_batch_size=5, max_prefill_tokens=16)
    generated = run_joining_at_random(engine, requests, seed=2)
    for each in requests:
        expected = reference_ids(reference(architecture), each.prompt_ids, each.parameters.max_new_tokens)
        assert generated[each.request_id] == expected
    assert engine.pool.free == engine.pool.size


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma2", "gptj"])
def test_preempted_sequences_go_on(
    architecture: str, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    directory = model_directory(architecture)
    roomy = make_engine(directory)
    blocks = 9  # all four prompts fit, but only one of them can grow to its full length beside another
    memory = blocks * roomy.limits.cache_bytes // roomy.pool.size
    engine = make_engine(directory, max_prefill_tokens=16, kv_cache_memory=memory)
    assert engine.pool.size == blocks
    requests = [request(str(i), ids, max_new_tokens=50) for i, ids in enumerate(make_prompts([14, 20, 9, 30]))]
    generated = run_joining_at_random(engine, requests, seed=3)
    for each in requests:
        assert generated[each.request_id] == reference_ids(reference(architecture), each.prompt_ids, 50)
    assert engine.pool.free == blocks
