import math
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from lmi_core.errors import ContextLengthExceeded, GenerationFailed, InvalidParameter
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.tokenizer import Detokenizer
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.engine.engine import MAX_FAILED_STEPS, Engine
from lmi_plugins.torch_engine.messages.requests import EngineOptions, EngineRequest
from lmi_plugins.torch_engine.messages.results import StepFailed
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import (
    CONTEXT,
    TEXT,
    VOCABULARY,
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

PROMPT = [5, 9, 200, 31, 77]


@pytest.fixture
def greedy_ids(reference: ReferenceModel) -> list[int]:
    return reference_ids(reference("llama"), PROMPT, 20)


def finish_reasons(results: Sequence[object]) -> list[object]:
    return [result.finish_reason if isinstance(result, GenerationStep) else result for result in results]


def test_ends_at_the_length_asked_for(engine: Engine, greedy_ids: list[int]) -> None:
    results = run(engine, request("a", PROMPT, max_new_tokens=20))["a"]
    assert ids(results) == greedy_ids
    assert finish_reasons(results) == [None] * 19 + ["length"]
    assert not engine.has_work


@pytest.mark.parametrize("architecture", ["llama", "qwen3_5_text", "trocr"])
def test_warming_up_leaves_nothing(architecture: str, model_directory: ModelDirectory) -> None:
    expected = ids(run(make_engine(model_directory(architecture)), request("a", PROMPT, max_new_tokens=20))["a"])
    engine = make_engine(model_directory(architecture))
    engine.warm_up(10_000)
    assert engine.pool.free == engine.pool.size
    assert not engine.has_work
    assert ids(run(engine, request("a", PROMPT, max_new_tokens=20))["a"]) == expected
    cache = engine.prefix_cache
    assert cache is None or (cache.prompt_tokens, cache.cached_tokens) == (len(PROMPT), 0)


def test_warming_up_reaches_all_sizes_and_says_which_one_does_not_fit(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sizes: list[int] = []

    def compute(batch: StepBatch, new_blocks: list[int]) -> torch.Tensor:
        sizes.append(batch.num_tokens)
        if batch.num_tokens > 31:
            raise torch.OutOfMemoryError
        return torch.zeros(1, VOCABULARY)

    monkeypatch.setattr(engine.runner, "run", compute)
    engine.warm_up(127)
    assert sizes == [1, 1, 1, 3, 2, 1, 7, 4, 1, 15, 8, 1, 31, 16, 1, 63]
    (record,) = caplog.records
    assert record.getMessage() == (
        "The GPU has too little memory for a step of 63 prompt tokens; reduce option.max_rolling_batch_prefill_tokens"
    )
    assert engine.pool.free == engine.pool.size


def test_ends_where_the_context_does(engine: Engine) -> None:
    assert engine.limits.max_length == CONTEXT
    results = run(engine, request("a", PROMPT, max_new_tokens=10_000))["a"]
    assert len(ids(results)) == CONTEXT - len(PROMPT)
    assert finish_reasons(results)[-1] == "length"


@pytest.mark.parametrize("as_list", [False, True])
def test_ends_at_an_end_of_sequence_token(as_list: bool, greedy_ids: list[int], tmp_path: Path) -> None:
    end_id = greedy_ids[6]
    save_tokenizer(tmp_path)
    save_model(tmp_path, "llama", [VOCABULARY - 1, end_id] if as_list else end_id)
    results = run(make_engine(tmp_path), request("a", PROMPT, max_new_tokens=20))["a"]
    assert ids(results) == greedy_ids[: greedy_ids.index(end_id) + 1]
    assert finish_reasons(results)[-1] == "eos_token"
    last = tokens(results)[-1]
    assert (last.text, last.special) == ("", True)


def test_a_request_may_have_end_tokens_of_its_own(greedy_ids: list[int], tmp_path: Path) -> None:
    """A request's end tokens replace the model's, even if there are none."""
    model_end, own_end = greedy_ids[6], greedy_ids[3]
    save_tokenizer(tmp_path)
    save_model(tmp_path, "llama", model_end)
    own: list[tuple[list[int] | None, int]] = [(None, model_end), ([own_end], own_end), ([], -1)]
    requests = [request(str(end), PROMPT, max_new_tokens=20, eos_token_ids=eos_token_ids) for eos_token_ids, end in own]
    results = run(make_engine(tmp_path), *requests)
    for _, end in own:
        expected = greedy_ids[: greedy_ids.index(end) + 1] if end in greedy_ids else greedy_ids
        assert ids(results[str(end)]) == expected
        assert finish_reasons(results[str(end)])[-1] == ("length" if end == -1 else "eos_token")


def test_the_latest_step_can_be_looked_at(engine: Engine) -> None:
    engine.add(request("a", PROMPT, max_new_tokens=2))
    engine.add(request("b", [1], max_new_tokens=1))
    seen = []
    while engine.has_work:
        engine.step()
        seen.append({chunk.sequence.request_id: (chunk.start, chunk.end) for chunk in engine.latest_chunks})
    assert seen == [{"a": (0, len(PROMPT)), "b": (0, 1)}, {"a": (len(PROMPT), len(PROMPT) + 1)}]


def test_ends_at_a_stop_sequence_that_straddles_tokens(engine: Engine) -> None:
    whole = run(engine, request("a", PROMPT, max_new_tokens=20))["a"]
    texts = [token.text for token in tokens(whole)]
    place = next(i for i in range(5, 18) if len(texts[i]) > 1 and texts[i + 1])
    stop = texts[place][1:] + texts[place + 1][:1]
    results = run(engine, request("a", PROMPT, max_new_tokens=20, stop_sequences=["never", stop]))["a"]
    joined = "".join(texts)
    assert text(results) == joined[: joined.index(stop)]
    assert finish_reasons(results)[-1] == "stop_sequence"
    assert [each.stop_sequence for each in results if isinstance(each, GenerationStep)][-2:] == [None, stop]
    assert ids(results) == ids(whole)[: len(ids(results))]
    assert all(token.log_prob is not None for token in tokens(results))


def test_texts_are_whole_characters(engine: Engine, tokenizer: HuggingFaceTokenizer) -> None:
    results = run(engine, *[request(str(i), [i + 2], max_new_tokens=100) for i in range(8)])
    for each in results.values():
        whole = str(tokenizer.pretrained.decode(ids(each), skip_special_tokens=True))
        # A character that the last tokens leave incomplete is dropped.
        assert whole.startswith(text(each))
        assert len(whole) - len(text(each)) <= 4


def test_prefill_lists_the_prompt(
    model_directory: ModelDirectory, reference: ReferenceModel, tokenizer: HuggingFaceTokenizer
) -> None:
    prompt = tokenizer.encode(TEXT[:40])
    with torch.inference_mode():
        logits = reference("llama")(torch.tensor([prompt])).logits[0]
    expected = logits.log_softmax(-1)[range(len(prompt) - 1), prompt[1:]].tolist()
    for max_prefill_tokens in (3, 512):
        engine = make_engine(model_directory("llama"), max_prefill_tokens=max_prefill_tokens)
        asked = request("a", prompt, max_new_tokens=3, prompt_log_probs=True)
        first, *rest = run(engine, asked, request("b", PROMPT, max_new_tokens=9))["a"]
        assert isinstance(first, GenerationStep)
        assert first.prefill is not None
        assert [token.id for token in first.prefill] == prompt
        assert "".join(token.text for token in first.prefill) == TEXT[:40]
        assert first.prefill[0].log_prob is None
        assert [token.log_prob for token in first.prefill[1:]] == pytest.approx(expected, abs=1e-4)
        assert all(isinstance(step, GenerationStep) and step.prefill is None for step in rest)


def test_prefill_comes_first_even_when_text_is_held_back(engine: Engine) -> None:
    results = (run(engine, request("a", [i], max_new_tokens=3))["a"] for i in range(2, VOCABULARY))
    place, whole = next((i, text(each)) for i, each in enumerate(results, 2) if tokens(each)[0].text)
    asked = request("a", [place], max_new_tokens=3, prompt_log_probs=True, stop_sequences=[whole + "never"])
    first, last = run(engine, asked)["a"]
    assert isinstance(first, GenerationStep)
    assert isinstance(last, GenerationStep)
    assert (first.tokens, first.prefill is None) == ([], False)
    assert "".join(token.text for token in last.tokens) == whole


def test_a_seed_gives_the_same_text_in_any_company(model_directory: ModelDirectory) -> None:
    def sampled(request_id: str, seed: int | None) -> EngineRequest:
        return request(request_id, PROMPT, max_new_tokens=30, temperature=1.0, top_p=0.95, seed=seed)

    engine = make_engine(model_directory("llama"))
    alone = ids(run(engine, sampled("a", 7))["a"])
    memory = 6 * engine.limits.cache_bytes // engine.pool.size
    crowded = make_engine(model_directory("llama"), max_prefill_tokens=4, kv_cache_memory=memory)
    others = [request(str(i), list(range(2, 20)), max_new_tokens=40, temperature=2.0) for i in range(5)]
    results = run(crowded, *others, sampled("a", 7), sampled("b", 8), sampled("c", None), sampled("d", None))
    assert ids(results["a"]) == alone
    assert len({tuple(ids(results[each])) for each in "abcd"}) == 4


def test_a_running_stream_never_waits_for_a_long_prompt(model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"), max_prefill_tokens=8)
    engine.add(request("stream", PROMPT, max_new_tokens=60))
    engine.step()
    engine.add(request("long", list(range(2, 102)), max_new_tokens=1))
    steps = 0
    while (results := dict(engine.step())) and "long" not in results:
        assert "stream" in results
        steps += 1
    assert steps == 100 // 8


def test_abort_frees_at_once(model_directory: ModelDirectory, greedy_ids: list[int]) -> None:
    engine = make_engine(model_directory("llama"), max_batch_size=2, max_prefill_tokens=8)
    for name in ("running", "prefilling", "waiting"):
        engine.add(request(name, PROMPT * 5, max_new_tokens=50))
    for _ in range(4):
        engine.step()
    for name in ("waiting", "running", "prefilling", "unknown", "running"):
        engine.abort(name)
    assert engine.pool.free == engine.pool.size
    assert not engine.has_work
    assert ids(run(engine, request("running", PROMPT, max_new_tokens=20))["running"]) == greedy_ids


@pytest.mark.parametrize("architecture", ["llama", "gptj"])
def test_hundreds_of_requests_leave_nothing_behind(architecture: str, model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory(architecture), max_batch_size=16, max_prefill_tokens=32)
    numbers = random.Random(0)
    ended: set[str] = set()
    alive: set[str] = set()
    for number in range(300):
        name = str(number)
        engine.add(request(name, [2] * numbers.randint(1, 30), max_new_tokens=numbers.randint(1, 8)))
        alive.add(name)
        if numbers.random() < 0.2:
            aborted = numbers.choice(sorted(alive))
            engine.abort(aborted)
            alive.remove(aborted)
        ended |= {request_id for request_id, result in engine.step() if finish_reasons([result]) != [None]}
        alive -= ended
    while engine.has_work:
        engine.step()
    assert engine.pool.free == engine.pool.size
    assert not engine.requests.groups


@pytest.fixture
def poisoned(tmp_path: Path, model_directory: ModelDirectory) -> Engine:
    """Token 2 makes the model give NaN."""
    model = reference_model(model_directory("llama"))
    with torch.no_grad():
        model.get_input_embeddings().weight[2] = math.nan
    shutil.copytree(model_directory("llama"), tmp_path, dirs_exist_ok=True)
    model.save_pretrained(tmp_path)
    return make_engine(tmp_path, max_prefill_tokens=32)


def test_logits_that_are_no_numbers_fail_alone(poisoned: Engine, greedy_ids: list[int]) -> None:
    good = [request(f"good {i}", PROMPT, max_new_tokens=20) for i in range(2)]
    results = run(poisoned, good[0], request("bad", [2, 3], temperature=1.0), good[1])
    assert [type(result) for result in results["bad"]] == [GenerationFailed]
    assert ids(results["good 0"]) == ids(results["good 1"]) == greedy_ids


def test_blocks_that_held_no_numbers_serve_others(poisoned: Engine, greedy_ids: list[int]) -> None:
    poisoned.add(request("bad", [2] * 100, max_new_tokens=5))
    poisoned.step()
    poisoned.abort("bad")
    assert ids(run(poisoned, request("good", PROMPT, max_new_tokens=20))["good"]) == greedy_ids


class BrittleTokenizer(HuggingFaceTokenizer):
    """Cannot write what follows a 7."""

    def detokenizer(self, prompt_ids: list[int]) -> Detokenizer:
        return BrittleDetokenizer() if prompt_ids[-1] == 7 else super().detokenizer(prompt_ids)


class BrittleDetokenizer(Detokenizer):
    def step(self, token_id: int) -> str:
        raise RuntimeError("broken")


def test_an_exception_in_one_row_fails_it_alone(
    model_directory: ModelDirectory, tokenizer: HuggingFaceTokenizer, greedy_ids: list[int]
) -> None:
    engine = Engine(EngineOptions(str(model_directory("llama"))), BrittleTokenizer(tokenizer.pretrained))
    results = run(engine, request("bad", [7]), request("good", PROMPT, max_new_tokens=20))
    assert [str(result) for result in results["bad"]] == ["The generation failed: broken"]
    assert ids(results["good"]) == greedy_ids
    assert engine.pool.free == engine.pool.size


def test_a_step_that_fails_fails_its_requests(
    model_directory: ModelDirectory, greedy_ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(model_directory("llama"))

    def fail(batch: StepBatch, new_blocks: list[int]) -> torch.Tensor:
        raise errors.pop()

    errors: list[Exception] = [torch.OutOfMemoryError("on the device"), ValueError("broken")]
    with monkeypatch.context() as patch:
        patch.setattr(engine.runner, "run", fail)
        results = run(engine, request("a", PROMPT), request("b", PROMPT))
    assert [type(result) for each in results.values() for result in each] == [StepFailed] * 2
    assert ids(run(engine, request("a", PROMPT, max_new_tokens=20))["a"]) == greedy_ids
    with monkeypatch.context() as patch:
        patch.setattr(engine.runner, "run", fail)
        with pytest.raises(torch.OutOfMemoryError):  # which ends the process
            run(engine, request("a", PROMPT))


def test_an_engine_whose_every_step_fails_ends(
    model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(model_directory("llama"))

    def fail(batch: StepBatch, new_blocks: list[int]) -> torch.Tensor:
        raise ValueError("broken")

    monkeypatch.setattr(engine.runner, "run", fail)
    for _ in range(MAX_FAILED_STEPS - 1):
        assert isinstance(run(engine, request("a", PROMPT))["a"][0], StepFailed)
    with pytest.raises(ValueError, match="broken"):
        run(engine, request("a", PROMPT))


def test_refuses_what_can_never_run(engine: Engine) -> None:
    with pytest.raises(ContextLengthExceeded, match=f"128 tokens, but the context has room for {CONTEXT}"):
        engine.add(request("a", [3] * CONTEXT))
    with pytest.raises(InvalidParameter, match="at least one token"):
        engine.add(request("a", []))
    for token_id in (-1, VOCABULARY):
        with pytest.raises(InvalidParameter, match=f"outside the vocabulary of {VOCABULARY}"):
            engine.add(request("a", [token_id]))
    engine.add(request("a", PROMPT))
    with pytest.raises(InvalidParameter, match="'a' is already in use"):
        engine.add(request("a", PROMPT))
    engine.abort("a")
    assert not engine.has_work


def test_a_small_cache_shortens_the_context(engine: Engine, model_directory: ModelDirectory) -> None:
    memory = 3 * engine.limits.cache_bytes // engine.pool.size
    small = make_engine(model_directory("llama"), kv_cache_memory=memory)
    assert small.limits.max_length == 48
    assert len(ids(run(small, request("a", PROMPT, max_new_tokens=100))["a"])) == 48 - len(PROMPT)


def test_models_that_run_row_by_row_are_named(
    model_directory: ModelDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    make_engine(model_directory("trocr"))
    assert "TrOCRForCausalLM runs each sequence separately" in caplog.text
