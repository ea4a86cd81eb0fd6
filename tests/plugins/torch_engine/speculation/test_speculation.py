"""Speculative decoding changes how many steps an answer takes, and nothing else."""

import logging
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from lmi_core.errors import ConfigurationError, InvalidParameter
from lmi_core.generation.output import GenerationStep
from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import EngineRequest, Guide, SamplingParameters, TensorData
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tensor_data import to_data
from tests.plugins.torch_engine.test_engine_greedy import make_prompts, run_joining_at_random
from tests.plugins.torch_engine.tiny_models import (
    VOCABULARY,
    ids,
    make_engine,
    reference_ids,
    reference_model,
    request,
    run,
    save_tokenizer,
    tokens,
)

PROMPT = [5, 9, 200, 31, 77]


def perturbed(directory: Path, target: Path, amount: float) -> Path:
    """A model that mostly says what the one in the directory does."""
    model = reference_model(directory)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += amount * torch.randn_like(parameter)
    save_tokenizer(target)
    model.save_pretrained(target)
    return target


@pytest.fixture(scope="module")
def draft_directory(model_directory: ModelDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return perturbed(model_directory("llama"), tmp_path_factory.mktemp("draft"), 0.01)


def with_draft_model(directory: Path, draft: Path, **options: Any) -> Engine:
    return make_engine(directory, speculative_draft_model=str(draft), **options)


def drafted(name: str, prompt_ids: list[int], draft_ids: list[int], **parameters: Any) -> EngineRequest:
    return EngineRequest(name, prompt_ids, SamplingParameters(**parameters), draft_ids=draft_ids)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gpt2"])
@pytest.mark.parametrize("max_prefill_tokens", [7, 512])
def test_greedy_text_is_the_same_in_fewer_steps(
    architecture: str,
    max_prefill_tokens: int,
    model_directory: ModelDirectory,
    reference: ReferenceModel,
    tmp_path: Path,
) -> None:
    directory = model_directory(architecture)
    draft = perturbed(directory, tmp_path, 0.005)
    engine = with_draft_model(directory, draft, max_prefill_tokens=max_prefill_tokens)
    prompts = make_prompts([30, 1, 17, 5], seed=7)
    requests = [request(str(i), prompt, max_new_tokens=30 + i) for i, prompt in enumerate(prompts)]
    results = run(engine, *requests)
    for each in requests:
        count = each.parameters.max_new_tokens
        assert ids(results[each.request_id]) == reference_ids(reference(architecture), each.prompt_ids, count)
        assert len(results[each.request_id]) < count
        generated = tokens(results[each.request_id])
        with torch.inference_mode():
            whole = torch.tensor([each.prompt_ids + [token.id for token in generated]])
            logits = reference(architecture)(whole).logits[0]
        likeliest = logits.log_softmax(-1)[len(each.prompt_ids) - 1 : -1].max(-1).values
        assert [token.log_prob for token in generated] == pytest.approx(likeliest.tolist(), abs=1e-4)
    assert 0.1 < engine.speculation.acceptance.rate < 1
    assert engine.pool.free == engine.pool.size


def test_a_draft_model_that_is_always_right(model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    directory = model_directory("llama")
    engine = with_draft_model(directory, directory, speculative_length=4)
    results = run(engine, request("a", PROMPT, max_new_tokens=50))["a"]
    assert ids(results) == reference_ids(reference("llama"), PROMPT, 50)
    assert [len(tokens([result])) for result in results] == [5] * 10
    assert engine.speculation.acceptance.rate == 1


def test_requests_join_and_leave_and_are_preempted(
    model_directory: ModelDirectory, draft_directory: Path, reference: ReferenceModel
) -> None:
    directory = model_directory("llama")
    roomy = with_draft_model(directory, draft_directory)
    memory = 10 * roomy.limits.cache_bytes // roomy.pool.size
    for options in ({"max_batch_size": 5, "max_prefill_tokens": 16}, {"kv_cache_memory": memory}):
        engine = with_draft_model(directory, draft_directory, **options)
        numbers = random.Random(1)
        prompts = make_prompts([numbers.randint(1, 40) for _ in range(10)], seed=1)
        requests = [request(str(i), each, max_new_tokens=numbers.randint(1, 40)) for i, each in enumerate(prompts)]
        generated = run_joining_at_random(engine, requests, seed=2)
        for each in requests:
            expected = reference_ids(reference("llama"), each.prompt_ids, each.parameters.max_new_tokens)
            assert generated[each.request_id] == expected
        assert engine.speculation.acceptance.accepted > 0
        assert engine.pool.free == engine.pool.size


@pytest.mark.parametrize(
    "parameters",
    [
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_length": 5},
        {"presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"temperature": 1.0, "seed": 3},
        {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 3},
        {"num_top_tokens": 3},
        {"prompt_log_probs": True},
        {"guide": Guide("regex", "[a-z ]{9,40}[.]")},
    ],
)
def test_every_parameter_means_the_same(
    parameters: dict[str, Any], model_directory: ModelDirectory, draft_directory: Path, engine: Engine
) -> None:
    asked = request("a", PROMPT, max_new_tokens=40, **parameters)
    plain = run(engine, asked)["a"]
    speculating = with_draft_model(model_directory("llama"), draft_directory)
    results = run(speculating, asked, request("b", PROMPT[:2], max_new_tokens=9))["a"]
    assert ids(results) == ids(plain)
    for token, expected in zip(tokens(results), tokens(plain), strict=True):
        assert (token.text, token.top_tokens is None) == (expected.text, expected.top_tokens is None)
        assert token.log_prob == pytest.approx(expected.log_prob, abs=1e-4)
        assert [top.id for top in token.top_tokens or []] == [top.id for top in expected.top_tokens or []]
    assert speculating.speculation.acceptance.accepted > 0


def test_stop_sequences_end_within_a_draft(model_directory: ModelDirectory, engine: Engine) -> None:
    directory = model_directory("llama")
    texts = [token.text for token in tokens(run(engine, request("a", PROMPT, max_new_tokens=30))["a"])]
    stop = next(text for text in texts[7:] if text)
    asked = request("a", PROMPT, max_new_tokens=30, stop_sequences=[stop])
    plain = run(engine, asked)["a"]
    results = run(with_draft_model(directory, directory), asked)["a"]
    assert [(token.id, token.text) for token in tokens(results)] == [(each.id, each.text) for each in tokens(plain)]
    last = results[-1]
    assert isinstance(last, GenerationStep)
    assert last.finish_reason == "stop_sequence"


@pytest.mark.parametrize(("right", "steps"), [(9, 1), (5, 4), (0, 9)])
def test_drafts_of_requests(right: int, steps: int, engine: Engine, reference: ReferenceModel) -> None:
    expected = reference_ids(reference("llama"), PROMPT, 10)
    before = engine.speculation.acceptance.accepted
    guess = expected[:right] + [(expected[right] + 1) % VOCABULARY] * (9 - right)
    other = request("other", PROMPT[1:], max_new_tokens=12)
    results = run(engine, other, drafted("a", PROMPT, guess, max_new_tokens=10))
    assert ids(results["a"]) == expected
    assert len(results["a"]) == (10 - right)
    assert engine.speculation.acceptance.accepted - before == right
    assert ids(results["other"]) == reference_ids(reference("llama"), PROMPT[1:], 12)


def test_a_draft_longer_than_the_answer(engine: Engine, reference: ReferenceModel) -> None:
    expected = reference_ids(reference("llama"), PROMPT, 20)
    results = run(engine, drafted("a", PROMPT, expected, max_new_tokens=6))["a"]
    assert ids(results) == expected[:6]
    assert len(results) == 1


def distribution(model: Any, prompt: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        probabilities: torch.Tensor = model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    return probabilities


def chi_square(counts: Counter[int], probabilities: torch.Tensor, draws: int) -> tuple[float, int]:
    """The statistic and its degrees of freedom, over the tokens that are expected often enough, and the rest."""
    usual = [i for i, p in enumerate(probabilities.tolist()) if p * draws >= 8]
    rest = draws * (1 - float(probabilities[usual].sum()))
    cells = [(counts[i], float(probabilities[i]) * draws) for i in usual]
    unusual = draws - sum(counts[i] for i in usual)
    if rest > 1:
        cells.append((unusual, rest))
    else:
        assert unusual < 10
    return sum((seen - expected) ** 2 / expected for seen, expected in cells), len(cells) - 1


def assert_distributed(counts: Counter[int], probabilities: torch.Tensor) -> None:
    """Fails once in about 30,000 runs where the distribution is right."""
    statistic, freedom = chi_square(counts, probabilities, counts.total())
    assert freedom > 4
    # Wilson and Hilferty's approximation of the quantile at four standard deviations
    limit = freedom * (1 - 2 / (9 * freedom) + 4 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert statistic < limit


DRAWS = 3000


@pytest.mark.parametrize("amount", [0.0, 0.05])
def test_sampling_with_a_draft_model_keeps_the_distribution(
    amount: float, model_directory: ModelDirectory, reference: ReferenceModel, tmp_path: Path
) -> None:
    directory = model_directory("llama")
    engine = with_draft_model(directory, perturbed(directory, tmp_path, amount), speculative_length=2)
    torch.manual_seed(0)
    engine.sampler._generator.manual_seed(0)
    requests = [request(str(i), PROMPT, max_new_tokens=3, temperature=1.0, top_k=12) for i in range(DRAWS)]
    results = [ids(each) for each in run(engine, *requests).values()]
    first = filtered(distribution(reference("llama"), PROMPT))
    assert_distributed(Counter(each[0] for each in results), first)
    (token_id, _), *_ = Counter(each[0] for each in results).most_common(1)
    second = filtered(distribution(reference("llama"), [*PROMPT, token_id]))
    assert_distributed(Counter(each[1] for each in results if each[0] == token_id), second)
    rate = engine.speculation.acceptance.rate
    assert rate > 0.99 if amount == 0 else 0.1 < rate < 0.9


def filtered(probabilities: torch.Tensor) -> torch.Tensor:
    """Return the logits filtered as with top_k=12."""
    least = probabilities.topk(12).values[-1]
    kept = torch.where(probabilities >= least, probabilities, 0)
    return kept / kept.sum()


@pytest.mark.parametrize("with_logits", [True, False])
def test_sampling_with_drafts_of_requests_keeps_the_distribution(
    with_logits: bool, engine: Engine, reference: ReferenceModel
) -> None:
    numbers = torch.Generator().manual_seed(0)
    engine.sampler._generator.manual_seed(0)
    target = distribution(reference("llama"), PROMPT)
    logits = target.log() + torch.randn(VOCABULARY, generator=numbers)
    parameters = SamplingParameters(max_new_tokens=2, temperature=1.0, top_k=12)
    requests = []
    for number in range(DRAWS):
        guess = int(torch.multinomial(logits.softmax(-1), 1, generator=numbers))
        data = to_data(logits[None]) if with_logits else None
        requests.append(EngineRequest(str(number), PROMPT, parameters, draft_ids=[guess], draft_logits=data))
    results = run(engine, *requests)
    assert_distributed(Counter(ids(each)[0] for each in results.values()), filtered(target))


def test_a_shared_head_is_read_by_the_draft_model_once(
    model_directory: ModelDirectory, draft_directory: Path, reference: ReferenceModel
) -> None:
    engine = with_draft_model(model_directory("llama"), draft_directory)
    (head,) = make_prompts([3 * BLOCK_SIZE], seed=3)
    for tail in ([5], [6, 7], [8]):
        results = run(engine, request("a", head + tail, max_new_tokens=20))["a"]
        assert ids(results) == reference_ids(reference("llama"), head + tail, 20)
    assert engine.prefix_cache is not None
    assert engine.prefix_cache.cached_tokens == 2 * len(head)


def test_a_head_that_the_draft_model_has_not_read_is_not_shared(model_directory: ModelDirectory) -> None:
    directory = model_directory("llama")
    engine = with_draft_model(directory, directory, speculative_length=4)
    assert engine.prefix_cache is not None
    (head,) = make_prompts([3 * BLOCK_SIZE + 1])
    run(engine, request("a", head, max_new_tokens=2, num_beams=2))
    results = run(engine, request("b", head, max_new_tokens=20))["b"]
    assert engine.prefix_cache.cached_tokens == 0
    assert [len(tokens([result])) for result in results] == [5] * 4
    assert engine.speculation.acceptance.rate == 1


def test_beams_run_beside_speculation(model_directory: ModelDirectory, draft_directory: Path, engine: Engine) -> None:
    asked = [request("beams", PROMPT * 5, max_new_tokens=12, num_beams=3), request("greedy", PROMPT, max_new_tokens=12)]
    plain = run(engine, *asked)
    speculating = with_draft_model(model_directory("llama"), draft_directory)
    for _ in range(2):
        results = run(speculating, *asked)
        for name in ("beams", "greedy"):
            assert ids(results[name]) == ids(plain[name])
    assert speculating.pool.free == speculating.pool.size


def test_the_acceptance_rate_is_logged(model_directory: ModelDirectory, caplog: pytest.LogCaptureFixture) -> None:
    directory = model_directory("llama")
    engine = with_draft_model(directory, directory, record_acceptance_rate=True)
    with caplog.at_level(logging.INFO):
        run(engine, request("a", PROMPT, max_new_tokens=12))
    assert "Request a: 10 of 10 draft tokens accepted (100%); of all requests so far 100%" in caplog.text


def test_hundreds_of_requests_leave_nothing_behind(model_directory: ModelDirectory, draft_directory: Path) -> None:
    roomy = with_draft_model(model_directory("llama"), draft_directory)
    memory = 20 * roomy.limits.cache_bytes // roomy.pool.size
    engine = with_draft_model(
        model_directory("llama"), draft_directory, max_batch_size=8, max_prefill_tokens=32, kv_cache_memory=memory
    )
    numbers = random.Random(0)
    alive: set[str] = set()
    for number in range(300):
        name = str(number)
        prompt = [2] * numbers.randint(1, 40)
        beams, temperature = (numbers.choice([1, 3]), 0.0) if number % 2 else (1, numbers.choice([0.0, 1.0]))
        parameters = {"max_new_tokens": numbers.randint(1, 12), "temperature": temperature, "num_beams": beams}
        guess = [numbers.randrange(VOCABULARY) for _ in range(numbers.randint(0, 5))] if beams == 1 else []
        engine.add(drafted(name, prompt, guess, **parameters))
        alive.add(name)
        if numbers.random() < 0.2:
            aborted = numbers.choice(sorted(alive))
            engine.abort(aborted)
            alive.remove(aborted)
        results = [(name, result) for name, result in engine.step() if isinstance(result, GenerationStep)]
        alive -= {name for name, result in results if result.finish_reason is not None}
    while engine.has_work:
        engine.step()
    assert engine.pool.free == engine.pool.size
    assert engine.speculation.acceptance.accepted > 0


def test_refuses_drafts_that_do_not_fit(engine: Engine, model_directory: ModelDirectory) -> None:
    logits = to_data(torch.zeros(2, VOCABULARY))
    refused: list[tuple[list[int], TensorData | None, dict[str, Any], str]] = [
        ([VOCABULARY], None, {}, f"from 0 to {VOCABULARY - 1}"),
        ([1], logits, {}, "must be of shape"),
        ([1], None, {"num_beams": 2}, "`num_beams` above 1 and draft tokens"),
    ]
    for draft_ids, draft_logits, parameters, message in refused:
        asked = EngineRequest("a", PROMPT, SamplingParameters(**parameters), None, None, draft_ids, draft_logits)
        with pytest.raises(InvalidParameter, match=message):
            engine.add(asked)
    for architecture in ("trocr", "mamba"):
        with pytest.raises(InvalidParameter, match="this model, which cannot roll back tokens"):
            make_engine(model_directory(architecture)).add(drafted("a", PROMPT, [1]))
    assert not engine.has_work


def test_refuses_draft_models_that_do_not_fit(model_directory: ModelDirectory, tmp_path: Path) -> None:
    llama = model_directory("llama")
    with pytest.raises(ConfigurationError, match="a model that can roll back tokens: MambaForCausalLM cannot"):
        with_draft_model(model_directory("mamba"), llama)
    for architecture, reason in (("trocr", "cannot run with a paged cache"), ("mamba", "cannot roll back tokens")):
        with pytest.raises(ConfigurationError, match=reason):
            with_draft_model(llama, model_directory(architecture))
    with pytest.raises(ConfigurationError, match="nowhere: the model cannot be loaded"):
        with_draft_model(llama, tmp_path / "nowhere")
