"""The state after the beginning of a prompt is kept, so that the next prompt that begins so goes on from there."""

from pathlib import Path

import pytest

from lmi_core.generation.output import GenerationStep
from lmi_plugins.torch_engine.cache import kept_states
from lmi_plugins.torch_engine.cache.prefix_cache import PrefixCache
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import CpuRunner, EngineRequest, SamplingParameters
from tests.plugins.torch_engine.adapters.lora_adapters import merged_model, save_adapter
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.test_engine_greedy import make_prompts
from tests.plugins.torch_engine.tiny_models import ids, make_engine, reference_ids, request, run

BLOCK = 32  # tokens: a multiple of both runners' blocks
COUNT = 12
RUNNERS = pytest.mark.parametrize(
    ("architecture", "runner"),
    [
        ("mamba", "torch"),
        ("mamba2", "torch"),
        ("lfm2", "torch"),
        ("qwen3_5_text", "torch"),
        ("lfm2", "openvino"),
        ("mamba2", "openvino"),
        ("qwen3_5_text", "openvino"),
    ],
)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make short parts of prompts worth an additional step."""
    monkeypatch.setattr(kept_states, "LEAST_GAIN", 1)


def cache_of(engine: Engine) -> PrefixCache:
    assert engine.prefix_cache is not None
    return engine.prefix_cache


def ask(engine: Engine, prompt: list[int], **parameters: object) -> tuple[list[int], int]:
    """Return the generated tokens, and the number of the prompt's tokens that were not computed again."""
    results = run(engine, request("a", prompt, max_new_tokens=COUNT, **parameters))["a"]
    (cached,) = (
        step.cached_tokens for step in results if isinstance(step, GenerationStep) and step.cached_tokens is not None
    )
    return ids(results), cached


@RUNNERS
def test_a_chat_goes_on(
    architecture: str, runner: CpuRunner, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    engine = make_engine(model_directory(architecture), cpu_runner=runner)
    size = engine.pool.block_size
    chat, *questions = make_prompts([size + 3, size // 2, 3])
    known = 0
    for question in [[], *questions]:
        chat = chat + question
        answer = reference_ids(reference(architecture), chat, COUNT)
        assert ask(engine, chat) == (answer, known)
        assert ask(engine, chat) == (answer, (len(chat) - 1) // size * size), "the same question again"
        chat = chat + answer
        known = (len(chat) - 1) // size * size


@RUNNERS
def test_the_third_prompt_goes_on_where_the_second_departed_from_the_first(
    architecture: str, runner: CpuRunner, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    engine = make_engine(model_directory(architecture), cpu_runner=runner, max_prefill_tokens=BLOCK - 5)
    head, *tails = make_prompts([BLOCK, 40, 35, 40])
    for tail, cached in zip(tails, [0, 0, len(head)], strict=True):
        prompt = head + tail
        assert ask(engine, prompt) == (reference_ids(reference(architecture), prompt, COUNT), cached)


@RUNNERS
def test_prompts_with_a_common_beginning_decode_together(
    architecture: str, runner: CpuRunner, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    engine = make_engine(model_directory(architecture), cpu_runner=runner)
    (head,) = make_prompts([BLOCK])
    prompts = [head + tail for tail in make_prompts([1, 9, 25, 40], seed=1)]
    expected = [reference_ids(reference(architecture), prompt, COUNT) for prompt in prompts]
    for _ in range(3):
        asked = [request(str(index), prompt, max_new_tokens=COUNT) for index, prompt in enumerate(prompts)]
        results = run(engine, *asked)
        assert [ids(results[each.request_id]) for each in asked] == expected
    assert cache_of(engine).cached_tokens >= 2 * len(prompts) * len(head)
    assert engine.pool.free == engine.pool.size


@RUNNERS
def test_a_preempted_sequence_goes_on_from_its_own_state(
    architecture: str, runner: CpuRunner, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    engine = make_engine(model_directory(architecture), cpu_runner=runner)
    (prompt,) = make_prompts([BLOCK - 3])
    engine.add(request("a", prompt, max_new_tokens=COUNT))
    found: list[int] = []
    for step in range(COUNT + 1):
        if step == COUNT - 2:
            engine.scheduler._preempt()
        for _, result in engine.step():
            assert isinstance(result, GenerationStep)
            found += [token.id for token in result.tokens]
        if step == COUNT - 2:
            (running,) = engine.latest_chunks
            assert running.start == BLOCK
    assert found == reference_ids(reference(architecture), prompt, COUNT)


@RUNNERS
def test_beams_and_samples_go_on_from_one_state(
    architecture: str, runner: CpuRunner, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    engine = make_engine(model_directory(architecture), cpu_runner=runner)
    (prompt,) = make_prompts([BLOCK + 5])
    for cached in (0, BLOCK):
        before = cache_of(engine).cached_tokens
        (beams,) = run(engine, request("a", prompt, max_new_tokens=COUNT, num_beams=3))["a"][:1]
        assert isinstance(beams, GenerationStep)
        assert [token.id for token in beams.tokens] == reference_ids(
            reference(architecture), prompt, COUNT, num_beams=3
        )
        assert cache_of(engine).cached_tokens - before == cached
    samples = run(engine, request("a", prompt, max_new_tokens=COUNT, num_samples=3))["a"]
    for index in range(3):
        steps = [each for each in samples if isinstance(each, GenerationStep) and each.sequence_index == index]
        generated = [token.id for step in steps for token in step.tokens]
        assert generated == reference_ids(reference(architecture), prompt, COUNT)


@pytest.mark.parametrize("runner", ["torch", "openvino"])
def test_adapters_have_states_of_their_own(
    runner: CpuRunner, model_directory: ModelDirectory, reference: ReferenceModel, tmp_path: Path
) -> None:
    directory = model_directory("qwen3_5_text")
    adapter = save_adapter(tmp_path / "adapter", reference("qwen3_5_text"), 1, ("q_proj", "up_proj", "in_proj_z"))
    engine = make_engine(directory, cpu_runner=runner, enable_lora=True)
    engine.load_adapter("tuned", adapter)
    (prompt,) = make_prompts([BLOCK + 3])
    models = {None: reference("qwen3_5_text"), "tuned": merged_model(directory, adapter)}
    for cached in (0, BLOCK):
        for name, model in models.items():
            before = cache_of(engine).cached_tokens
            asked = EngineRequest("a", prompt, SamplingParameters(max_new_tokens=COUNT), name)
            assert ids(run(engine, asked)["a"]) == reference_ids(model, prompt, COUNT)
            assert cache_of(engine).cached_tokens - before == cached


def test_the_states_least_recently_used_are_dropped(model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("qwen3_5_text"), cpu_runner="openvino", max_batch_size=3)
    prompts = make_prompts([BLOCK + 3] * 4)
    assert [ask(engine, prompt)[1] for prompt in prompts] == [0, 0, 0, 0]
    oldest, *others = prompts
    assert [ask(engine, prompt)[1] for prompt in (*others, oldest, others[0])] == [BLOCK, BLOCK, BLOCK, 0, 0]


def test_a_long_answer_leaves_one_state(model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("qwen3_5_text"), max_batch_size=2)
    prompt, chat = make_prompts([BLOCK + 3, 5])
    run(engine, request("a", prompt, max_new_tokens=2 * BLOCK))
    assert ask(engine, prompt)[1] == BLOCK
    answer = ids(run(engine, request("a", prompt, max_new_tokens=2 * BLOCK))["a"])
    assert ask(engine, prompt + answer + chat)[1] == (len(prompt + answer) - 1) // 16 * 16


def test_short_beginnings_are_computed_again(model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_states, "LEAST_GAIN", 2 * BLOCK)
    engine = make_engine(model_directory("qwen3_5_text"))
    short, long = make_prompts([BLOCK + 3, 2 * BLOCK + 1])
    assert [ask(engine, prompt)[1] for prompt in (short, short, long, long)] == [0, 0, 0, 2 * BLOCK]


def test_without_memory_for_states_there_is_no_cache(
    model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = model_directory("qwen3_5_text")
    state = make_engine(directory).runner.state_bytes
    monkeypatch.setattr("lmi_plugins.torch_engine.cache.memory.available_memory", lambda *_: 6 * state - 1)
    assert make_engine(directory).prefix_cache is None
