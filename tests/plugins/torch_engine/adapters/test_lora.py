"""Requests with adapters get what the model with the merged weights gives, token for token, in any company."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lmi_core.errors import AdapterNotFound, GenerationFailed, InvalidAdapter
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import AdapterTensors, EngineRequest, SamplingParameters
from lmi_plugins.torch_engine.messages.results import Result
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from tests.plugins.torch_engine.adapters.lora_adapters import adapter_tensors, merged_model, save_adapter
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tensor_data import to_data
from tests.plugins.torch_engine.tiny_models import ids, make_engine, reference_ids, request, run

PROMPT = [5, 9, 200, 31, 77]
COUNT = 20
TARGETS = {
    "llama": ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    "gemma2": ("q_proj", "v_proj", "down_proj"),
    "gpt2": ("c_attn", "c_proj", "c_fc"),
    "gptj": ("q_proj", "v_proj", "fc_in", "fc_out"),
    "bloom": ("query_key_value", "dense_h_to_4h"),
}
NAMES = ("a", "b", "c")

AdapterDirectory = Callable[..., Path]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory, reference: ReferenceModel) -> AdapterDirectory:
    """An adapter's directory, made the first time that it is asked for."""
    base = tmp_path_factory.mktemp("adapters")

    def make(name: str, architecture: str = "llama", **config: Any) -> Path:
        directory = base / f"{architecture}-{name}"
        if not directory.exists():
            arguments: dict[str, Any] = {
                "targets": TARGETS[architecture],
                "fan_in_fan_out": architecture == "gpt2",
            } | config
            save_adapter(directory, reference(architecture), seed=sum(name.encode()), **arguments)
        return directory

    return make


@pytest.fixture(scope="module")
def expected(model_directory: ModelDirectory, adapter: AdapterDirectory, reference: ReferenceModel) -> Any:
    """Return the output of the model merged with the adapter, or of the model itself for None."""
    models: dict[tuple[str, str], Any] = {}

    def generate(name: str | None, prompt_ids: list[int], architecture: str = "llama", count: int = COUNT) -> list[int]:
        if name is None:
            return reference_ids(reference(architecture), prompt_ids, count)
        key = architecture, name
        if key not in models:
            models[key] = merged_model(model_directory(architecture), adapter(name, architecture))
        return reference_ids(models[key], prompt_ids, count)

    return generate


def adapted(request_id: str, name: str | None, prompt_ids: list[int], **parameters: Any) -> EngineRequest:
    return EngineRequest(request_id, prompt_ids, SamplingParameters(**parameters), adapter=name)


def drain(engine: Engine) -> dict[str, list[Result]]:
    results: dict[str, list[Result]] = {}
    while engine.has_work:
        for request_id, result in engine.step():
            results.setdefault(request_id, []).append(result)
    return results


@pytest.mark.parametrize("architecture", TARGETS)
def test_several_in_one_batch(
    architecture: str, model_directory: ModelDirectory, adapter: AdapterDirectory, expected: Any
) -> None:
    engine = make_engine(
        model_directory(architecture),
        max_prefill_tokens=16,
        max_batch_size=6,
        adapters={name: str(adapter(name, architecture)) for name in NAMES},
    )
    numbers = random.Random(0)
    requests = []
    for place in range(12):
        prompt = [numbers.randrange(2, 300) for _ in range(numbers.randint(1, 30))]
        requests.append(
            adapted(str(place), [*NAMES, None][place % 4], prompt, max_new_tokens=numbers.randint(1, COUNT))
        )
    results = run(engine, *requests)
    for each in requests:
        count = each.parameters.max_new_tokens
        assert ids(results[each.request_id]) == expected(each.adapter, each.prompt_ids, architecture, count)
    prompts = [each.prompt_ids for each in requests[:6]]
    texts = [[expected(name, prompt, architecture) for prompt in prompts] for name in (*NAMES, None)]
    assert all(text not in texts[:place] for place, text in enumerate(texts))


@pytest.mark.parametrize(
    "config",
    [
        {"use_rslora": True, "alpha": 3},
        {"rank": 1, "alpha": 0.5},
        {"rank_pattern": {"q_proj": 7, "up_proj": 2}, "alpha_pattern": {"v_proj": 1}},
        {"targets": ("k_proj",), "target_modules": "all-linear", "rank": 16},
    ],
)
def test_configurations(
    config: dict[str, Any], model_directory: ModelDirectory, reference: ReferenceModel, tmp_path: Path
) -> None:
    directory = save_adapter(tmp_path, reference("llama"), seed=1, **config)
    engine = make_engine(model_directory("llama"), adapters={"x": str(directory)})
    merged = merged_model(model_directory("llama"), directory)
    assert ids(run(engine, adapted("x", "x", PROMPT, max_new_tokens=COUNT))["x"]) == reference_ids(
        merged, PROMPT, COUNT
    )
    assert reference_ids(merged, PROMPT, COUNT) != reference_ids(reference("llama"), PROMPT, COUNT)


def test_more_adapters_than_fit(model_directory: ModelDirectory, adapter: AdapterDirectory, expected: Any) -> None:
    names = ["a", "b", "c", "d", "e"]
    directories = {name: str(adapter(name)) for name in names}
    engine = make_engine(model_directory("llama"), adapters=directories, max_loras=2, max_cpu_loras=2)
    requests = [adapted(f"{place}{name}", name, PROMPT, max_new_tokens=7) for place in range(3) for name in names]
    requests.insert(4, adapted("base", None, PROMPT, max_new_tokens=7))
    results = run(engine, *requests)
    for each in requests:
        assert ids(results[each.request_id]) == expected(each.adapter, PROMPT, count=7)


def test_nothing_of_a_larger_adapter_stays_in_its_slot(
    model_directory: ModelDirectory, adapter: AdapterDirectory, reference: ReferenceModel, tmp_path: Path
) -> None:
    small = save_adapter(tmp_path, reference("llama"), seed=2, rank=1)
    engine = make_engine(model_directory("llama"), adapters={"a": str(adapter("a")), "b": str(small)}, max_loras=1)
    run(engine, adapted("a", "a", PROMPT, max_new_tokens=1))
    found = ids(run(engine, adapted("b", "b", PROMPT, max_new_tokens=COUNT))["b"])
    assert found == reference_ids(merged_model(model_directory("llama"), small), PROMPT, COUNT)


def test_no_more_adapters_run_at_once_than_max_loras(
    model_directory: ModelDirectory, adapter: AdapterDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(
        model_directory("llama"), adapters={name: str(adapter(name)) for name in NAMES}, max_loras=1, max_batch_size=8
    )
    assert isinstance(engine.runner, PagedRunner)
    seen: list[list[str | None]] = []
    begin = engine.adapters.begin

    def watch(chunks: Any) -> None:
        seen.append([None if (own := chunk.sequence.adapter) is None else own.name for chunk in chunks])
        begin(chunks)

    monkeypatch.setattr(engine.adapters, "begin", watch)
    requests = [adapted(str(i), name, PROMPT, max_new_tokens=4) for i, name in enumerate(["a", "b", "a", None, "c"])]
    run(engine, *requests)
    assert all(len(set(names) - {None}) <= 1 for names in seen)
    assert seen[0] == ["a", None]  # nobody overtakes one that waits for a slot, except those that need none
    assert ["c"] in seen


def test_loading_and_unloading_while_others_run(
    model_directory: ModelDirectory, adapter: AdapterDirectory, expected: Any
) -> None:
    engine = make_engine(model_directory("llama"), adapters={"a": str(adapter("a"))}, max_loras=2)
    results: dict[str, list[int]] = {"one": [], "base": [], "two": []}

    def step(count: int) -> None:
        for _ in range(count):
            for request_id, result in engine.step():
                results[request_id] += ids([result])

    engine.add(adapted("one", "a", PROMPT, max_new_tokens=COUNT))
    engine.add(adapted("base", None, PROMPT, max_new_tokens=COUNT))
    step(5)
    engine.load_adapter("b", adapter("b"))
    engine.add(adapted("two", "b", PROMPT, max_new_tokens=COUNT))
    step(2)
    engine.adapters.remove("a")
    with pytest.raises(AdapterNotFound, match=r"there is no adapter `a`\. Known: b"):
        engine.add(adapted("three", "a", PROMPT))
    assert engine.adapters.names == ["b"]
    step(COUNT)
    assert not engine.has_work
    assert results == {name: expected(which, PROMPT) for name, which in (("one", "a"), ("base", None), ("two", "b"))}


def test_a_name_that_is_loaded_again_is_another_adapter(
    model_directory: ModelDirectory, adapter: AdapterDirectory, expected: Any
) -> None:
    engine = make_engine(model_directory("llama"), adapters={"x": str(adapter("a"))})
    prompt = PROMPT * 10  # several full blocks, which the next request would find
    before = ids(run(engine, adapted("before", "x", prompt, max_new_tokens=COUNT))["before"])
    engine.add(adapted("running", "x", prompt, max_new_tokens=COUNT))
    running = [token_id for _ in range(3) for _, result in engine.step() for token_id in ids([result])]
    engine.load_adapter("x", adapter("b"))
    engine.add(adapted("after", "x", prompt, max_new_tokens=COUNT))
    results = drain(engine)
    assert before == running + ids(results["running"]) == expected("a", prompt)
    assert ids(results["after"]) == expected("b", prompt)


def test_weights_from_memory(model_directory: ModelDirectory, adapter: AdapterDirectory, expected: Any) -> None:
    engine = make_engine(model_directory("llama"), max_loras=1, max_cpu_loras=2)
    for name in ("a", "b"):
        engine.load_adapter(name, adapter_tensors(adapter(name)))
    for name in ("a", "b"):
        assert ids(run(engine, adapted("1", name, PROMPT, max_new_tokens=COUNT))["1"]) == expected(name, PROMPT)
    engine.add(adapted("displaced", "a", PROMPT, max_new_tokens=COUNT))
    engine.add(adapted("kept", "b", PROMPT, max_new_tokens=COUNT))
    engine.load_adapter("c", adapter_tensors(adapter("c")))
    assert engine.adapters.names == ["b", "c"]
    with pytest.raises(AdapterNotFound):
        engine.add(adapted("late", "a", PROMPT))
    results = drain(engine)
    assert (ids(results["displaced"]), ids(results["kept"])) == (expected("a", PROMPT), expected("b", PROMPT))


def test_the_one_that_was_not_used_for_the_longest_time_goes(
    model_directory: ModelDirectory, adapter: AdapterDirectory
) -> None:
    engine = make_engine(model_directory("llama"), max_loras=2, max_cpu_loras=2)
    for name in ("a", "b"):
        engine.load_adapter(name, adapter_tensors(adapter(name)))
        run(engine, adapted("1", name, PROMPT))
    run(engine, adapted("1", "a", PROMPT))  # which is on the device already
    engine.load_adapter("c", adapter_tensors(adapter("c")))
    assert engine.adapters.names == ["a", "c"]


def test_an_unloaded_one_takes_no_place_in_main_memory(
    model_directory: ModelDirectory, adapter: AdapterDirectory
) -> None:
    engine = make_engine(model_directory("llama"), max_loras=2, max_cpu_loras=2)
    for name in ("a", "b"):
        engine.load_adapter(name, adapter_tensors(adapter(name)))
    engine.adapters.remove("b")
    engine.load_adapter("c", adapter_tensors(adapter("c")))
    assert engine.adapters.names == ["a", "c"]


def test_a_device_without_room_fails_requests_and_loses_no_slot(
    model_directory: ModelDirectory, adapter: AdapterDirectory, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(model_directory("llama"), adapters={"a": str(adapter("a"))}, max_loras=1)

    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(engine.adapters._layers, "fill", fail)
        results = run(engine, adapted("1", "a", PROMPT), adapted("base", None, PROMPT, max_new_tokens=COUNT))
    assert [type(result) for result in results["1"]] == [GenerationFailed]
    assert ids(results["base"]) == expected(None, PROMPT)
    assert ids(run(engine, adapted("2", "a", PROMPT, max_new_tokens=COUNT))["2"]) == expected("a", PROMPT)


def test_tensors_without_a_configuration_are_added_as_they_are(
    model_directory: ModelDirectory, reference: ReferenceModel, tmp_path: Path
) -> None:
    directory = save_adapter(tmp_path, reference("llama"), seed=5, rank=6, alpha=6)
    engine = make_engine(model_directory("llama"))
    engine.load_adapter("x", AdapterTensors(adapter_tensors(directory).tensors))
    merged = merged_model(model_directory("llama"), directory)
    assert ids(run(engine, adapted("x", "x", PROMPT, max_new_tokens=COUNT))["x"]) == reference_ids(
        merged, PROMPT, COUNT
    )


def test_an_adapter_that_cannot_be_read_again_fails_its_requests_alone(
    model_directory: ModelDirectory, adapter: AdapterDirectory, expected: Any, tmp_path: Path
) -> None:
    shutil.copytree(adapter("a"), tmp_path / "a")
    directories = {"a": str(tmp_path / "a"), "b": str(adapter("b"))}
    engine = make_engine(model_directory("llama"), adapters=directories, max_loras=1, max_cpu_loras=1)
    shutil.rmtree(tmp_path / "a")
    results = run(engine, adapted("a", "a", PROMPT), adapted("b", "b", PROMPT, max_new_tokens=COUNT))
    assert [type(result) for result in results["a"]] == [GenerationFailed]
    assert "adapter a: " in str(results["a"][0])
    assert ids(results["b"]) == expected("b", PROMPT)
    assert engine.pool.free == engine.pool.size


def test_preempted_sequences_keep_their_adapters(
    model_directory: ModelDirectory, adapter: AdapterDirectory, expected: Any
) -> None:
    directories = {name: str(adapter(name)) for name in NAMES}
    roomy = make_engine(model_directory("llama"))
    memory = 9 * roomy.limits.cache_bytes // roomy.pool.size
    engine = make_engine(model_directory("llama"), adapters=directories, max_loras=2, kv_cache_memory=memory)
    requests = [adapted(str(i), [*NAMES, None][i % 4], PROMPT * 4, max_new_tokens=40) for i in range(6)]
    results = run(engine, *requests)
    for each in requests:
        assert ids(results[each.request_id]) == expected(each.adapter, each.prompt_ids, count=40)


def test_unknown_and_disabled(model_directory: ModelDirectory, adapter: AdapterDirectory) -> None:
    engine = make_engine(model_directory("llama"), adapters={"french": str(adapter("a"))})
    with pytest.raises(AdapterNotFound, match=r"`frensh`\. Did you mean `french`"):
        engine.add(adapted("x", "frensh", PROMPT))
    with pytest.raises(AdapterNotFound):
        engine.adapters.remove("frensh")
    disabled = make_engine(model_directory("llama"), enable_lora=False)
    with pytest.raises(AdapterNotFound, match="enable_lora is false"):
        disabled.add(adapted("x", "french", PROMPT))
    with pytest.raises(AdapterNotFound, match="enable_lora is false"):
        disabled.load_adapter("french", adapter("a"))


def test_what_does_not_fit_is_refused_and_nothing_changes(
    model_directory: ModelDirectory, adapter: AdapterDirectory, expected: Any, reference: ReferenceModel, tmp_path: Path
) -> None:
    engine = make_engine(model_directory("llama"), adapters={"a": str(adapter("a"))}, max_lora_rank=4)
    save_adapter(tmp_path / "rank", reference("llama"), seed=1, rank=5)
    with pytest.raises(InvalidAdapter, match=r"_proj must have a rank of at most option.max_lora_rank, 4. Given: 5"):
        engine.load_adapter("a", tmp_path / "rank")
    save_adapter(tmp_path / "other", reference("gptj"), seed=1, targets=("fc_in",))
    with pytest.raises(InvalidAdapter, match=r"the model has no layer transformer\.h\.0\.mlp\.fc_in"):
        engine.load_adapter("a", tmp_path / "other")
    save_adapter(tmp_path / "head", reference("llama"), seed=1, targets=("lm_head",))
    with pytest.raises(InvalidAdapter, match="LoRA on the output layer, lm_head, is not supported on the torch engine"):
        engine.load_adapter("a", tmp_path / "head")
    source = adapter_tensors(adapter("b"))
    name = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"
    wrong = AdapterTensors({**source.tensors, name: to_data(torch.zeros(50, 4))}, source.config)
    with pytest.raises(InvalidAdapter, match=r"layers.1.mlp.up_proj: the model's layer has 32 inputs and 48"):
        engine.load_adapter("a", wrong)
    bad = AdapterTensors({**source.tensors, name: to_data(torch.full((48, 4), float("nan")))}, source.config)
    with pytest.raises(InvalidAdapter, match="are not finite"):
        engine.load_adapter("a", bad)
    assert engine.adapters.names == ["a"]
    assert ids(run(engine, adapted("a", "a", PROMPT, max_new_tokens=COUNT))["a"]) == expected("a", PROMPT)


def test_without_adapters_nothing_is_hooked(model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"))
    run(engine, request("a", PROMPT))
    assert not any(module._forward_hooks for module in engine.model.modules())


def test_with_beams_and_drafts(
    model_directory: ModelDirectory, adapter: AdapterDirectory, expected: Any, reference: ReferenceModel
) -> None:
    engine = make_engine(model_directory("llama"), adapters={name: str(adapter(name)) for name in NAMES})
    parameters = SamplingParameters(max_new_tokens=COUNT)
    right = expected("b", PROMPT)
    results = run(
        engine,
        adapted("beams", "a", PROMPT, max_new_tokens=COUNT, num_beams=3),
        EngineRequest("draft", PROMPT, parameters, adapter="b", draft_ids=[*right[:4], 3]),
        adapted("base", None, PROMPT, max_new_tokens=COUNT),
    )
    assert ids(results["draft"]) == right
    assert ids(results["base"]) == expected(None, PROMPT)
    merged = merged_model(model_directory("llama"), adapter("a"))
    prompt = torch.tensor([PROMPT])
    beams = merged.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=COUNT,
        do_sample=False,
        num_beams=3,
        num_return_sequences=3,
    )
    assert [ids([result]) for result in results["beams"]] == beams[:, len(PROMPT) :].tolist()
