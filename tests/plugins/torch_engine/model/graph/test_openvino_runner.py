"""OpenVINO computes the same as transformers and as the torch runner, whatever runs and however the work is cut up."""

import logging
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from examples.hello.stories import story
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.embeddings.packed_states import PackedStates
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput
from lmi_plugins.torch_engine.messages.requests import EngineRequest, SamplingParameters
from lmi_plugins.torch_engine.model.graph import openvino_runner, stored, tracing, weights
from lmi_plugins.torch_engine.model.graph.openvino_runner import OpenVinoRunner, SignalStack
from lmi_plugins.torch_engine.model.graph.state_nodes import TracedStates
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from lmi_plugins.torch_engine.sequences.step_batch import StepBatch
from tests.plugins.torch_engine.adapters.lora_adapters import save_adapter
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.test_any_company import (
    ADAPTERS,
    LOG_PROB_BOUND,
    SUBJECT,
    Guest,
    answer,
    companies,
    in_company,
    requests,
)
from tests.plugins.torch_engine.test_engine_greedy import COUNT, make_prompts
from tests.plugins.torch_engine.tiny_models import ids, make_engine, reference_ids, request, run, tokens

WITH_STATE = ("qwen3_5_text", "lfm2", "mamba2")
FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma3_text",
    "phi3",
    "gpt_neox",
    "gpt2",
    "qwen3_moe",
    "minicpm3",
)
HELLO = Path("examples/hello")
# Of a log probability, whose values are up to 10; PyTorch's own bfloat16 and float16 are as far away.
BOUNDS = {"bf16": 0.15, "fp16": 0.02}
BLOCKS = 8


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMI_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def openvino_engine(directory: Path, **options: Any) -> Engine:
    engine = make_engine(directory, cpu_runner="openvino", **options)
    assert isinstance(engine.runner, OpenVinoRunner)
    return engine


def test_signals_are_handled_on_the_stack_of_before(model_directory: ModelDirectory) -> None:
    before = SignalStack.current()
    openvino_engine(model_directory("llama"))
    after = SignalStack.current()
    assert (after.address, after.flags) == (before.address, before.flags)


def expected_log_probs(model: Any, prompt_ids: list[int], generated: list[int]) -> list[float]:
    with torch.inference_mode():
        logits = model(torch.tensor([prompt_ids + generated])).logits[0].float()
    rows = logits.log_softmax(-1)[len(prompt_ids) - 1 : -1]
    return [row[token_id].item() for row, token_id in zip(rows, generated, strict=True)]


@pytest.mark.parametrize("architecture", [*FAMILIES, *WITH_STATE])
def test_same_as_transformers(architecture: str, model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    prompts = make_prompts([70, 1, 17, 33])
    model = reference(architecture)
    expected = [reference_ids(model, prompt, COUNT) for prompt in prompts]
    engine = openvino_engine(model_directory(architecture), max_prefill_tokens=29)
    alone = ids(run(engine, request("alone", prompts[0], max_new_tokens=COUNT))["alone"])
    assert alone == expected[0]
    together = run(engine, *[request(str(i), prompt, max_new_tokens=COUNT) for i, prompt in enumerate(prompts)])
    for number, prompt in enumerate(prompts):
        generated = tokens(together[str(number)])
        assert [token.id for token in generated] == expected[number]
        log_probs = expected_log_probs(model, prompt, expected[number])
        assert [token.log_prob for token in generated] == pytest.approx(log_probs, abs=1e-4)


@pytest.mark.parametrize("architecture", ["llama", "gpt_neox", "gemma3_text", "qwen3_5_text"])
@pytest.mark.parametrize("dtype", BOUNDS)
def test_short_types(dtype: str, architecture: str, model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    """A CPU without instructions for the type computes in float32."""
    engine = openvino_engine(model_directory(architecture), dtype=dtype)
    (prompt,) = make_prompts([60])
    results = run(engine, request("a", prompt, max_new_tokens=1, prompt_log_probs=True))["a"]
    found = [token.log_prob for token in prefill(results)]
    expected = expected_log_probs(reference(architecture), prompt[:1], prompt[1:])
    states_add_up = 3 if architecture in WITH_STATE else 1
    assert found[1:] == pytest.approx(expected, abs=BOUNDS[dtype] * states_add_up)


def prefill(results: list[Any]) -> list[Any]:
    return [token for step in results for token in step.prefill or []]


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory, reference: ReferenceModel) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return {name: save_adapter(folder / name, reference("llama"), i) for i, name in enumerate(ADAPTERS)}


@pytest.mark.parametrize(("architecture", "dtype"), [("llama", "bf16"), ("llama", "fp16"), ("minicpm3", "fp16")])
def test_libraries_share_the_cache_of_short_types(
    architecture: str,
    dtype: str,
    model_directory: ModelDirectory,
    reference: ReferenceModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch computes the middle of a prompt, beside a request with an adapter, and OpenVINO the rest."""
    steps, by_pytorch = list[int](), PagedRunner.run
    engine = openvino_engine(model_directory(architecture), dtype=dtype, max_loras=1, max_prefill_tokens=25)
    engine.load_adapter("other", save_adapter(tmp_path, reference(architecture), 0, ("up_proj",)))
    (prompt,) = make_prompts([60])

    def count(self: PagedRunner, batch: StepBatch, new_blocks: list[int]) -> torch.Tensor:
        steps.append(len(batch.token_ids))
        return by_pytorch(self, batch, new_blocks)

    monkeypatch.setattr(PagedRunner, "run", count)
    engine.add(request("whole", prompt, max_new_tokens=1, prompt_log_probs=True))
    results = [*engine.step()]
    engine.add(EngineRequest("other", prompt[:5], SamplingParameters(max_new_tokens=1), "other"))
    while engine.has_work:
        results += engine.step()
    assert len(steps) == 1
    found = [token.log_prob for token in prefill([result for request_id, result in results if request_id == "whole"])]
    expected = expected_log_probs(reference(architecture), prompt[:1], prompt[1:])
    assert found[1:] == pytest.approx(expected, abs=BOUNDS[dtype], rel=1e-3)


@pytest.fixture(scope="module")
def quiet(model_directory: ModelDirectory, adapters: dict[str, Path]) -> Engine:
    given = {name: str(folder) for name, folder in adapters.items()}
    engine = make_engine(model_directory("llama"), cpu_runner="torch", enable_prefix_caching=False, adapters=given)
    assert type(engine.runner) is PagedRunner
    return engine


@pytest.fixture(scope="module")
def crowded(quiet: Engine, model_directory: ModelDirectory, adapters: dict[str, Path]) -> Engine:
    """Return an engine with little memory, whose adapters come later: PyTorch computes the steps with them."""
    memory = BLOCKS * 2 * quiet.limits.cache_bytes // quiet.pool.size
    options = {"max_batch_size": 4, "max_prefill_tokens": 20, "max_loras": 1}
    engine = openvino_engine(model_directory("llama"), kv_cache_memory=memory, **options)
    assert engine.pool.size == BLOCKS
    for name, folder in adapters.items():
        engine.load_adapter(name, folder)
    return engine


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(subject=requests(SUBJECT, True), comes=st.integers(0, 25), company=companies())
def test_an_answer_in_company_is_that_of_pytorch_alone(
    quiet: Engine, crowded: Engine, subject: EngineRequest, comes: int, company: list[Guest]
) -> None:
    """Samples, beams, log probabilities, guides, adapters, preemption and cached prefixes are among the requests."""
    alone = answer(run(quiet, subject)[SUBJECT])
    found = answer(in_company(crowded, subject, comes, company))
    assert found.exact == alone.exact
    assert found.log_probs == pytest.approx(alone.log_probs, abs=LOG_PROB_BOUND)
    assert crowded.pool.free == BLOCKS


def test_drafts(model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    """A draft model has blocks of the same size, whichever library computes it."""
    (prompt,) = make_prompts([40])
    expected = reference_ids(reference("llama"), prompt, 30)
    for draft in ("llama", "gemma2"):
        engine = openvino_engine(model_directory("llama"), speculative_draft_model=str(model_directory(draft)))
        assert ids(run(engine, request("a", prompt, max_new_tokens=30))["a"]) == expected
        assert engine.pool.block_size == 32


class LongStep:
    """A request of OpenVINO's that is still being computed at the first two looks at each step."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._looks = 0

    def wait_for(self, milliseconds: int) -> bool:
        self._looks += 1
        return self._looks % 3 == 0 and bool(self._request.wait_for(60_000))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


def test_signs_of_life(model_directory: ModelDirectory) -> None:
    engine = openvino_engine(model_directory("llama"))
    runner, beats = engine.runner, list[None]()
    assert isinstance(runner, OpenVinoRunner)
    runner.progress = lambda: beats.append(None)
    runner._request = LongStep(runner._request)
    run(engine, request("a", make_prompts([90])[0], max_new_tokens=5))
    assert len(beats) == 2 * 5


def perplexity(engine: Engine, texts: list[list[int]]) -> float:
    results = run(
        engine, *[request(str(i), text, max_new_tokens=1, prompt_log_probs=True) for i, text in enumerate(texts)]
    )
    log_probs = [token.log_prob for each in results.values() for token in prefill(each)[1:]]
    return math.exp(-sum(log_probs) / len(log_probs))


@pytest.mark.parametrize("quantize", ["int8", "int4"])
def test_quantized_weights_are_as_good(quantize: str) -> None:
    tokenizer = HuggingFaceTokenizer.load(str(HELLO))
    texts = [tokenizer.encode(story(random.Random(f"unseen {number}"))) for number in range(8)]
    whole = perplexity(make_engine(HELLO, cpu_runner="torch"), texts)
    quantized = make_engine(HELLO, quantize=quantize)
    assert isinstance(quantized.runner, OpenVinoRunner)
    found = perplexity(quantized, texts)
    assert found != whole
    assert found == pytest.approx(whole, rel=0.01)


@pytest.mark.parametrize(("quantize", "bound"), [("int8", 0.15), ("int4", 0.5)])
def test_quantized_experts(
    quantize: str, bound: float, model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experts' weights with rows of 128 inputs take 4 bits; the others take 8."""
    (prompt,) = make_prompts([60])
    found = []
    for options in ({}, {"quantize": quantize}):
        engine = openvino_engine(model_directory("qwen3_moe"), **options)
        results = run(engine, request("a", prompt, max_new_tokens=1, prompt_log_probs=True))["a"]
        found.append([token.log_prob for token in prefill(results)][1:])
    assert found[1] != found[0]
    assert torch.tensor(found).diff(dim=0).abs().mean() < bound
    monkeypatch.setattr(weights, "GROUPS", 7)  # the numbers do not depend on how many are made at a time
    engine = openvino_engine(model_directory("qwen3_moe"), quantize=quantize)
    results = run(engine, request("a", prompt, max_new_tokens=1, prompt_log_probs=True))["a"]
    assert [token.log_prob for token in prefill(results)][1:] == found[1]


@pytest.mark.parametrize(
    ("architecture", "options", "reason"),
    [
        ("gemma2", {}, "its attention has a soft cap"),
        ("gpt_oss", {}, "its attention has a soft cap, sinks or ALiBi"),
        ("mamba", {}, "OpenVINO has no operation for the state of some of its layers"),
    ],
)
def test_pytorch_computes_other_models(
    architecture: str,
    options: dict[str, Any],
    reason: str,
    model_directory: ModelDirectory,
    reference: ReferenceModel,
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = make_engine(model_directory(architecture), cpu_runner="openvino", **options)
    assert type(engine.runner) is PagedRunner
    (record,) = [each for each in caplog.records if each.getMessage().startswith("PyTorch computes ")]
    assert record.getMessage().endswith(f": {reason}")
    assert record.levelno == logging.WARNING
    (prompt,) = make_prompts([20])
    assert ids(run(engine, request("a", prompt, max_new_tokens=1))["a"]) == reference_ids(
        reference(architecture), prompt, 1
    )


def test_quantized_weights_without_a_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    texts = [HuggingFaceTokenizer.load(str(HELLO)).encode(story(random.Random(f"unseen {n}"))) for n in range(2)]
    expected = perplexity(make_engine(HELLO, quantize="int8"), texts)
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "file"))
    assert perplexity(make_engine(HELLO, quantize="int8"), texts) == expected


@pytest.mark.parametrize("fault", ["add_attention", "as_tensor"])
def test_a_graph_that_cannot_be_compiled_or_run(
    fault: str, model_directory: ModelDirectory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("Exception from core.cpp:1:\nCheck 'x' failed at core.cpp:2:\nno such operation\n")

    monkeypatch.setattr(openvino_runner, fault, refuse)
    engine = make_engine(model_directory("llama"), cpu_runner="openvino")
    assert type(engine.runner) is PagedRunner
    assert "PyTorch computes LlamaForCausalLM: OpenVINO does not support it: no such operation" in caplog.messages


def test_weights_that_do_not_fit_in_memory_twice(
    model_directory: ModelDirectory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino_runner, "free_memory", lambda _: 50_000)
    assert type(make_engine(model_directory("llama"), cpu_runner="openvino").runner) is PagedRunner
    reason = "OpenVINO's copy of the weights would need 103 kB, but 50 kB are free"
    assert f"PyTorch computes LlamaForCausalLM: {reason}" in caplog.messages
    openvino_engine(model_directory("llama"), quantize="int8")


def test_embeddings_beside_generation(model_directory: ModelDirectory) -> None:
    """PyTorch makes them with the same weights."""
    texts = make_prompts([40, 7])
    made = []
    for runner in ("torch", "openvino"):
        engine = make_engine(model_directory("llama"), cpu_runner=runner)
        base = engine.model.base_model
        assert isinstance(base, PreTrainedModel)
        with torch.inference_mode():
            made.append(torch.cat(PackedStates(base).run([EmbeddingInput(text) for text in texts])))
    torch.testing.assert_close(made[1], made[0])


def test_a_graph_is_traced_once(
    model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LMI_CACHE", str(tmp_path))
    traced: list[object] = []
    trace = tracing.trace

    def noted(model: PreTrainedModel, states: TracedStates) -> object:
        traced.append(model)
        return trace(model, states)

    monkeypatch.setattr(tracing, "trace", noted)
    prompt = request("a", make_prompts([50])[0], max_new_tokens=8)
    expected = ids(run(openvino_engine(model_directory("llama")), prompt)["a"])
    assert len(traced) == 1
    assert ids(run(openvino_engine(model_directory("llama")), prompt)["a"]) == expected
    assert len(traced) == 1
    openvino_engine(model_directory("qwen2"))
    assert len(traced) == 2
    files = sorted((tmp_path / stored.FOLDER).glob("*.xml"))
    assert len(files) == 2
    for file in files:
        file.write_text("damaged")
    assert ids(run(openvino_engine(model_directory("llama")), prompt)["a"]) == expected
    assert len(traced) == 3
    assert any("cannot be read, and is written again" in message for message in caplog.messages)


def test_without_a_cache_folder(
    model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder that cannot be written to costs time at the next start, and nothing else."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "file"))
    caplog.set_level(logging.INFO)
    openvino_engine(model_directory("llama"))
    assert any("is not kept in the cache folder" in message for message in caplog.messages)
