"""The logits that a request gets are those of one full forward pass."""

from typing import Any

import pytest
import torch

from lmi_core.generation.output import GenerationStep
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import EngineRequest, SamplingParameters
from lmi_plugins.torch_engine.messages.results import Result
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import VOCABULARY, ids, make_engine, request, run

PROMPT = [5, 9, 200, 31, 77] * 5
COUNT = 15


def full_pass(model: Any, token_ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([token_ids])).logits[0]
    return logits


def joined(parts: list[bytes | None]) -> torch.Tensor:
    data = b"".join(part for part in parts if part is not None)
    return torch.frombuffer(bytearray(data), dtype=torch.float32).view(-1, VOCABULARY)


def steps_of(results: list[Result]) -> list[GenerationStep]:
    assert all(isinstance(result, GenerationStep) for result in results), results
    return [result for result in results if isinstance(result, GenerationStep)]


def check(steps: list[GenerationStep], asked: EngineRequest, model: Any) -> None:
    generated = [token.id for step in steps for token in step.tokens]
    expected = full_pass(model, asked.prompt_ids + generated)
    length = len(asked.prompt_ids)
    for step in steps:
        assert len(step.generation_logits or b"") == len(step.tokens) * VOCABULARY * 4
    assert torch.allclose(joined([steps[0].prompt_logits]), expected[:length], atol=1e-4)
    assert all(step.prompt_logits is None for step in steps[1:])
    assert torch.allclose(joined([step.generation_logits for step in steps]), expected[length - 1 : -1], atol=1e-4)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gpt2", "gemma2", "gptj", "bloom", "mamba"])
@pytest.mark.parametrize("max_prefill_tokens", [7, 512])
def test_of_prompt_and_generation(
    architecture: str, max_prefill_tokens: int, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    engine = make_engine(model_directory(architecture), max_prefill_tokens=max_prefill_tokens)
    requests = [
        request(str(place), PROMPT[place:], max_new_tokens=COUNT, prompt_logits=True, generation_logits=True)
        for place in range(3)
    ]
    results = run(engine, requests[0], request("other", PROMPT), *requests[1:])
    for each in requests:
        check(steps_of(results[each.request_id]), each, reference(architecture))
    assert all((step.prompt_logits, step.generation_logits) == (None, None) for step in steps_of(results["other"]))


@pytest.mark.parametrize(("prompt_logits", "generation_logits"), [(True, False), (False, True)])
def test_either_alone(engine: Engine, prompt_logits: bool, generation_logits: bool) -> None:
    asked = request("a", PROMPT, max_new_tokens=3, prompt_logits=prompt_logits, generation_logits=generation_logits)
    steps = steps_of(run(engine, asked)["a"])
    assert [step.prompt_logits is not None for step in steps] == [prompt_logits, False, False]
    assert [step.generation_logits is not None for step in steps] == [generation_logits] * 3


def test_with_preemption(model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    roomy = make_engine(model_directory("llama"))
    memory = 6 * roomy.limits.cache_bytes // roomy.pool.size
    engine = make_engine(model_directory("llama"), kv_cache_memory=memory, max_prefill_tokens=16)
    requests = [
        request(str(place), [place + 2, *PROMPT], max_new_tokens=40, prompt_logits=True, generation_logits=True)
        for place in range(4)
    ]
    results = run(engine, *requests)
    for each in requests:
        check(steps_of(results[each.request_id]), each, reference("llama"))


def test_of_tokens_that_are_held_back(engine: Engine, reference: ReferenceModel) -> None:
    whole = run(engine, request("a", PROMPT, max_new_tokens=COUNT))["a"]
    text = "".join(token.text for step in steps_of(whole) for token in step.tokens)
    asked = request(
        "a",
        PROMPT,
        max_new_tokens=COUNT,
        prompt_logits=True,
        generation_logits=True,
        stop_sequences=[text[:-1] + "never"],
    )
    results = run(engine, asked)["a"]
    assert ids(results) == ids(whole)
    assert any(len(step.tokens) > 1 for step in steps_of(results))
    check(steps_of(results), asked, reference("llama"))


def test_sampling_and_penalties_leave_them_as_they_are(engine: Engine, reference: ReferenceModel) -> None:
    parameters = {"temperature": 0.7, "top_k": 3, "repetition_penalty": 1.5, "seed": 1, "max_new_tokens": COUNT}
    asked = request("a", PROMPT, prompt_logits=True, generation_logits=True, **parameters)
    check(steps_of(run(engine, asked)["a"]), asked, reference("llama"))


def test_a_prompt_whose_head_is_cached_has_them_all(engine: Engine, reference: ReferenceModel) -> None:
    run(engine, request("before", PROMPT, max_new_tokens=COUNT))
    asked = request("a", PROMPT, max_new_tokens=COUNT, prompt_logits=True, generation_logits=True)
    check(steps_of(run(engine, asked)["a"]), asked, reference("llama"))


@pytest.mark.parametrize("parameters", [{"num_samples": 2, "temperature": 1.0}, {"num_beams": 3}])
def test_of_several_sequences(parameters: dict[str, Any], engine: Engine, reference: ReferenceModel) -> None:
    asked = request("a", PROMPT, max_new_tokens=COUNT, prompt_logits=True, generation_logits=True, **parameters)
    steps = steps_of(run(engine, asked)["a"])
    indices = {step.sequence_index for step in steps}
    assert len(indices) > 1
    (prompt_logits,) = [step.prompt_logits for step in steps if step.prompt_logits is not None]
    for index in indices:
        own = [step for step in steps if step.sequence_index == index]
        assert all(step.prompt_logits is None for step in own[1:])
        own[0].prompt_logits = prompt_logits
        check(own, asked, reference("llama"))


def test_of_tokens_that_were_drafted(engine: Engine, reference: ReferenceModel) -> None:
    right = ids(run(engine, request("a", PROMPT, max_new_tokens=COUNT))["a"])
    parameters = SamplingParameters(max_new_tokens=COUNT, generation_logits=True)
    for draft in (right[:5], [*right[:2], 3, 3]):
        asked = EngineRequest("a", PROMPT, parameters, draft_ids=draft)
        steps = steps_of(run(engine, asked)["a"])
        assert [token.id for step in steps for token in step.tokens] == right
        expected = full_pass(reference("llama"), PROMPT + right)[len(PROMPT) - 1 : -1]
        assert torch.allclose(joined([step.generation_logits for step in steps]), expected, atol=1e-4)
