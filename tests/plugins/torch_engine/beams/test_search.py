"""Beam search finds transformers' own sequences, in its order, whatever else runs and however blocks are shared."""

import random
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import torch

from lmi_core.errors import GenerationFailed, InvalidParameter
from lmi_core.generation.output import GenerationStep
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.beams.search import BeamSearch
from lmi_plugins.torch_engine.cache.block_pool import BLOCK_SIZE
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import EngineRequest
from lmi_plugins.torch_engine.messages.results import Result
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.test_engine_greedy import make_prompts
from tests.plugins.torch_engine.tiny_models import (
    ids,
    make_engine,
    reference_ids,
    reference_model,
    request,
    run,
    save_model,
    save_tokenizer,
    text,
    tokens,
)

END_IDS = list(range(2, 320, 12))  # so many that beams end at every length
EARLY_STOPPING: tuple[bool | Literal["never"], ...] = (False, True, "never")
PROMPT = [5, 9, 200, 31, 77]


class Found(NamedTuple):
    """One sequence of a search."""

    token_ids: list[int]
    reason: str | None


def expected(model: Any, prompt: list[int], count: int, beams: int, **parameters: Any) -> list[list[int]]:
    """Return the beams that transformers finds, best first, without padding."""
    ends = model.generation_config.eos_token_id or []
    ids = torch.tensor([prompt])
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        num_beams=beams,
        num_return_sequences=beams,
        do_sample=False,
        **parameters,
    )
    sequences: list[list[int]] = output[:, len(prompt) :].tolist()
    return [_up_to_end(sequence, [ends] if isinstance(ends, int) else ends) for sequence in sequences]


def _up_to_end(sequence: list[int], ends: list[int]) -> list[int]:
    first = next((place for place, token_id in enumerate(sequence) if token_id in ends), len(sequence))
    return sequence[: first + 1]


def found(results: list[Result]) -> list[Found]:
    """Return the sequences by index, each of which comes in one step."""
    steps = [result for result in results if isinstance(result, GenerationStep)]
    assert [step.sequence_index for step in steps] == list(range(len(results))), results
    return [Found([token.id for token in step.tokens], step.finish_reason) for step in steps]


def found_ids(results: list[Result]) -> list[list[int]]:
    return [each.token_ids for each in found(results)]


@pytest.fixture(scope="module")
def ending(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama whose sequences often end."""
    directory = tmp_path_factory.mktemp("ending")
    save_tokenizer(directory)
    save_model(directory, "llama", END_IDS)
    return directory


@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.5, -1.0])
def test_stops_where_transformers_does(ending: Path, length_penalty: float) -> None:
    engine, model = make_engine(ending), reference_model(ending)
    answers: dict[object, list[list[int]]] = {}
    for early_stopping in EARLY_STOPPING:
        options: dict[str, Any] = {"early_stopping": early_stopping, "length_penalty": length_penalty}
        answers[early_stopping] = []
        for prompt, beams in zip(make_prompts([1, 5, 16, 33], seed=4), (5, 2, 2, 5), strict=True):
            asked = request("a", prompt, max_new_tokens=30, num_beams=beams, **options)
            sequences = found_ids(run(engine, asked)["a"])
            assert sequences == expected(model, prompt, 30, beams, **options)
            answers[early_stopping] += sequences
    assert (answers[True] != answers["never"]) == (length_penalty > 0)
    assert len({len(each) for each in answers[True]}) > 2
    assert engine.pool.free == engine.pool.size


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "mistral", "gemma2", "qwen3"])
def test_alone_and_among_others(architecture: str, model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    model = reference(architecture)
    engine = make_engine(model_directory(architecture), max_prefill_tokens=16)
    prompts = make_prompts([20, 3, 40], seed=5)
    searches = [request(f"beams {i}", prompt, max_new_tokens=20, num_beams=i + 2) for i, prompt in enumerate(prompts)]
    others = [request(f"greedy {i}", prompt, max_new_tokens=15) for i, prompt in enumerate(prompts)]
    wanted = [expected(model, each.prompt_ids, 20, each.parameters.num_beams) for each in searches]
    assert [found_ids(run(engine, each)[each.request_id]) for each in searches] == wanted
    together = run(engine, searches[0], others[0], searches[1], others[1], searches[2], others[2])
    assert [found_ids(together[each.request_id]) for each in searches] == wanted
    for each in others:
        assert ids(together[each.request_id]) == reference_ids(model, each.prompt_ids, 15)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"repetition_penalty": 1.4}, {"repetition_penalty": 1.4}),
        ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),
        ({"min_length": 6}, {"min_new_tokens": 6}),
    ],
)
def test_penalties(ending: Path, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    engine, model = make_engine(ending), reference_model(ending)
    for prompt in make_prompts([4, 17], seed=6):
        asked = request("a", prompt, max_new_tokens=20, num_beams=4, **ours)
        assert found_ids(run(engine, asked)["a"]) == expected(model, prompt, 20, 4, **theirs)


@pytest.mark.parametrize("early_stopping", EARLY_STOPPING)
def test_a_stop_sequence_ends_a_beam(
    early_stopping: bool | Literal["never"],
    engine: Engine,
    reference: ReferenceModel,
    tokenizer: HuggingFaceTokenizer,
) -> None:
    prompt = tokenizer.encode("jumps over")
    for stop in ("n", "m", "r", "8", "["):
        asked = request(
            "a", prompt, max_new_tokens=12, num_beams=3, stop_sequences=[stop], early_stopping=early_stopping
        )
        results = run(engine, asked)["a"]
        assert stop not in text(results)
        theirs = {"stop_strings": [stop], "tokenizer": tokenizer.pretrained, "early_stopping": early_stopping}
        sequences = expected(reference("llama"), prompt, 12, 3, **theirs)
        for each, whole in zip(found(results), sequences, strict=True):
            assert each.token_ids == whole[: len(each.token_ids)]
            assert set(whole[len(each.token_ids) :]) <= {-1}  # which pads
        assert ("stop_sequence" in [each.reason for each in found(results)]) is (stop != "[")
        for step in results:
            assert isinstance(step, GenerationStep)
            assert step.stop_sequence == (stop if step.finish_reason == "stop_sequence" else None)


def test_log_probs_are_those_of_one_full_pass(ending: Path) -> None:
    model = reference_model(ending)
    asked = request("a", PROMPT, max_new_tokens=20, num_beams=3, repetition_penalty=1.3, prompt_log_probs=True)
    results = run(make_engine(ending), asked)["a"]
    for place, step in enumerate(results):
        assert isinstance(step, GenerationStep)
        generated = [token.id for token in step.tokens]
        with torch.inference_mode():
            logits = model(torch.tensor([PROMPT + generated])).logits[0]
        own = logits.log_softmax(-1)[range(len(PROMPT) - 1, len(PROMPT) + len(generated) - 1), generated]
        assert [token.log_prob for token in step.tokens] == pytest.approx(own.tolist(), abs=1e-4)
        assert (step.prefill is not None) == (place == 0)
        assert [token.id for token in step.prefill or []] == (PROMPT if place == 0 else [])


def test_beams_share_blocks(model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"))
    prompt = [7] * (4 * BLOCK_SIZE) + [8] * 3
    engine.add(request("a", prompt, max_new_tokens=8, num_beams=6))
    most = 0
    while engine.has_work:
        engine.step()
        most = max(most, engine.pool.size - engine.pool.free)
    assert most == 4 + 6
    assert engine.pool.free == engine.pool.size


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "mistral"])
def test_preempted_searches_begin_anew(
    architecture: str,
    enable_prefix_caching: bool,
    model_directory: ModelDirectory,
    reference: ReferenceModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, restart = list[BeamSearch](), BeamSearch.restart

    def counted(search: BeamSearch) -> None:
        begun.append(search)
        restart(search)

    monkeypatch.setattr(BeamSearch, "restart", counted)
    directory = model_directory(architecture)
    roomy = make_engine(directory)
    memory = 14 * roomy.limits.cache_bytes // roomy.pool.size
    engine = make_engine(directory, kv_cache_memory=memory, enable_prefix_caching=enable_prefix_caching)
    searches = [request(f"b{i}", ids, max_new_tokens=30, num_beams=3) for i, ids in enumerate(make_prompts([20, 35]))]
    searches += [request("prefill", [5, 6], max_new_tokens=30, num_beams=3, prompt_log_probs=True)]
    others = [request(f"g{i}", ids, max_new_tokens=50) for i, ids in enumerate(make_prompts([14, 9], seed=1))]
    results = run(engine, others[0], searches[0], others[1], searches[1], searches[2])
    first = results["prefill"][0]
    assert isinstance(first, GenerationStep)
    assert [token.id for token in first.prefill or []] == [5, 6]
    for each in searches:
        found = results[each.request_id]
        assert found_ids(found) == expected(reference(architecture), each.prompt_ids, 30, 3)
        cached = [step.cached_tokens for step in found if isinstance(step, GenerationStep)]
        assert cached == [0, None, None], "of its own blocks, found again later, none counts"
    for each in others:
        assert ids(results[each.request_id]) == reference_ids(reference(architecture), each.prompt_ids, 50)
    assert len(begun) > len(set(begun)) == len(searches)
    assert engine.pool.free == engine.pool.size == 14


def mixed_request(name: str, numbers: random.Random) -> EngineRequest:
    head = [3] * numbers.choice([0, BLOCK_SIZE, 2 * BLOCK_SIZE])
    prompt = head + [numbers.randrange(2, 9) for _ in range(numbers.randint(1, 20))]
    beams = numbers.choice([1, 1, 2, 4])
    return request(name, prompt, max_new_tokens=numbers.randint(1, 12), num_beams=beams)


def test_hundreds_of_mixed_requests_leave_nothing_behind(model_directory: ModelDirectory) -> None:
    directory = model_directory("llama")
    roomy = make_engine(directory)
    engine = make_engine(
        directory, max_prefill_tokens=32, kv_cache_memory=24 * roomy.limits.cache_bytes // roomy.pool.size
    )
    numbers = random.Random(0)
    alive: dict[str, EngineRequest] = {}
    ended: list[tuple[EngineRequest, list[int]]] = []
    gained: dict[str, list[int]] = {}
    for number in range(400):
        each = mixed_request(str(number), numbers)
        engine.add(each)
        alive[each.request_id] = each
        if numbers.random() < 0.15:
            aborted = numbers.choice(sorted(alive))
            engine.abort(aborted)
            del alive[aborted]
        while engine.has_work and len(alive) > 12:
            collect(engine, alive, gained, ended)
    while engine.has_work:
        collect(engine, alive, gained, ended)
    assert not alive
    assert engine.pool.free == engine.pool.size
    assert engine.prefix_cache is not None
    assert engine.prefix_cache.cached_tokens > 0
    for each, generated in ended[::40]:
        assert ids(run(roomy, each)[each.request_id]) == generated


def collect(
    engine: Engine,
    alive: dict[str, EngineRequest],
    gained: dict[str, list[int]],
    ended: list[tuple[EngineRequest, list[int]]],
) -> None:
    """One step. Of a search all sequences come in one step, one behind the other."""
    results = engine.step()
    for request_id, result in results:
        gained.setdefault(request_id, []).extend(ids([result]))
    for request_id in {name for name, result in results if isinstance(result, GenerationStep) and result.finish_reason}:
        ended.append((alive.pop(request_id), gained[request_id]))


def test_aborted_searches_free_their_blocks(model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"), max_batch_size=6)
    for name in ("running", "waiting"):
        engine.add(request(name, [7] * 40, max_new_tokens=50, num_beams=4))
    for _ in range(5):
        engine.step()
    engine.abort("waiting")
    engine.abort("running")
    assert engine.pool.free == engine.pool.size
    assert not engine.has_work


def test_logits_that_are_no_numbers_fail_alone(ending: Path, tmp_path: Path) -> None:
    model = reference_model(ending)
    with torch.no_grad():
        model.get_input_embeddings().weight[2] = torch.nan
    save_tokenizer(tmp_path)
    model.save_pretrained(tmp_path)
    engine = make_engine(tmp_path)
    asked = request("good", PROMPT, max_new_tokens=9, num_beams=2)
    results = run(engine, asked, request("bad", [2, 3], num_beams=2))
    assert [type(result) for result in results["bad"]] == [GenerationFailed]
    assert found_ids(results["good"]) == found_ids(run(make_engine(ending), asked)["good"])
    assert engine.pool.free == engine.pool.size


def test_tokens_come_with_the_likeliest_in_their_places(ending: Path) -> None:
    results = run(make_engine(ending), request("a", PROMPT, max_new_tokens=6, num_beams=2, num_top_tokens=3))["a"]
    for place, token in enumerate(tokens(results[:1])):
        before = PROMPT + ids(results[:1])[:place]
        with torch.inference_mode():
            best = reference_model(ending)(torch.tensor([before])).logits[0, -1].log_softmax(-1).topk(3)
        assert [top.id for top in token.top_tokens or []] == best.indices.tolist()
        assert [top.log_prob for top in token.top_tokens or []] == pytest.approx(best.values.tolist(), abs=1e-4)


def test_refuses_what_beams_cannot_do(engine: Engine, model_directory: ModelDirectory) -> None:
    for parameters, message in (
        ({"temperature": 1.0}, "a temperature"),
        ({"num_samples": 2}, "`n` or `best_of`"),
        ({"num_beams": 40}, "at most 32"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            engine.add(request("a", PROMPT, **{"num_beams": 2, **parameters}))
    small = make_engine(model_directory("llama"), kv_cache_memory=4 * engine.limits.cache_bytes // engine.pool.size)
    with pytest.raises(InvalidParameter, match="the cache of 64 tokens"):
        small.add(request("a", PROMPT, num_beams=5, max_new_tokens=10))
    with pytest.raises(InvalidParameter, match="runs each sequence separately"):
        make_engine(model_directory("trocr")).add(request("a", PROMPT, num_beams=2))
    assert not engine.has_work
