"""OpenVINO keeps the states of all sequences in tables, beside those that PyTorch keeps for sequences with adapters."""

import gc
import logging
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from lmi_core.generation.output import GenerationStep
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import EngineRequest, SamplingParameters
from lmi_plugins.torch_engine.model.graph import state_nodes, stored
from lmi_plugins.torch_engine.model.graph.openvino_runner import OpenVinoRunner
from lmi_plugins.torch_engine.model.graph.state_tables import FIRST_SIZE, StateTables
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from tests.plugins.torch_engine.adapters.lora_adapters import merged_model, save_adapter
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.test_engine_greedy import make_prompts
from tests.plugins.torch_engine.tiny_models import (
    CONFIGS,
    ids,
    make_engine,
    reference_ids,
    request,
    run,
    save_configured,
    save_tokenizer,
)

ARCHITECTURE = "qwen3_5_text"
COUNT = 10


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LMI_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def openvino_engine(directory: Path, **options: Any) -> Engine:
    engine = make_engine(directory, cpu_runner="openvino", **options)
    assert isinstance(engine.runner, OpenVinoRunner)
    return engine


def tables(engine: Engine) -> StateTables:
    assert isinstance(engine.runner, OpenVinoRunner)
    return engine.runner._states


def test_tables_grow_and_all_rows_are_free_again(model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    options = {"max_batch_size": 2 * FIRST_SIZE, "max_prefill_tokens": 40, "enable_prefix_caching": False}
    engine = openvino_engine(model_directory(ARCHITECTURE), **options)
    assert len(tables(engine)._free) == FIRST_SIZE - 1
    prompts = make_prompts([3 + 2 * number for number in range(2 * FIRST_SIZE)])
    for _ in range(2):
        results = run(engine, *[request(str(i), each, max_new_tokens=COUNT) for i, each in enumerate(prompts)])
        for number, prompt in enumerate(prompts):
            assert ids(results[str(number)]) == reference_ids(reference(ARCHITECTURE), prompt, COUNT)
        size = tables(engine)._size
        assert size > 2 * FIRST_SIZE
        assert sorted(tables(engine)._free) == [*range(1, size)]


def test_states_of_a_batch_are_in_a_row_so_that_nothing_is_copied(model_directory: ModelDirectory) -> None:
    engine = openvino_engine(model_directory(ARCHITECTURE))
    for number, prompt in enumerate(make_prompts([5, 9, 3])):
        engine.add(request(str(number), prompt, max_new_tokens=COUNT))
    for _ in range(4):
        engine.step()
    (of_all,) = tables(engine)._rounds
    assert of_all.tokens == slice(0, 3)
    assert isinstance(of_all.before, slice)
    assert isinstance(of_all.after, slice)
    assert of_all.before != of_all.after


def test_states_that_are_not_in_a_row(model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    engine = openvino_engine(model_directory(ARCHITECTURE))
    others = tables(engine).next_rows(FIRST_SIZE - 1)
    del others[::2]  # leaves every second row free
    prompts = make_prompts([5, 9, 3, 1])
    found: dict[str, list[int]] = {str(number): [] for number in range(len(prompts))}
    for name, prompt in zip(found, prompts, strict=True):
        engine.add(request(name, prompt, max_new_tokens=COUNT))
    rows = []
    while engine.has_work:
        for name, result in engine.step():
            assert isinstance(result, GenerationStep), result
            found[name] += [token.id for token in result.tokens]
        rows += [(type(each.before), type(each.after)) for each in tables(engine)._rounds]
    assert {(list, slice), (slice, slice)} <= {*rows}, "first in every second row, later in a row"
    assert [*found.values()] == [reference_ids(reference(ARCHITECTURE), prompt, COUNT) for prompt in prompts]


def test_beams_share_a_state_and_go_on_by_themselves(model_directory: ModelDirectory) -> None:
    beams = request("a", make_prompts([30])[0], max_new_tokens=COUNT, num_beams=3)
    company = request("b", make_prompts([11])[0], max_new_tokens=COUNT)
    expected = run(make_engine(model_directory(ARCHITECTURE), cpu_runner="torch"), beams, company)
    engine = openvino_engine(model_directory(ARCHITECTURE))
    found = run(engine, beams, company)
    assert {name: ids(results) for name, results in found.items()} == {
        name: ids(results) for name, results in expected.items()
    }


def test_pytorch_computes_sequences_with_adapters_beside_the_others(
    model_directory: ModelDirectory, reference: ReferenceModel, tmp_path: Path
) -> None:
    directory = model_directory(ARCHITECTURE)
    adapter = save_adapter(tmp_path / "adapter", reference(ARCHITECTURE), 1, ("q_proj", "up_proj", "in_proj_z"))
    engine = openvino_engine(directory, max_prefill_tokens=16)
    engine.load_adapter("tuned", adapter)
    prompts = make_prompts([25, 40, 12])
    names = ["tuned", None, "tuned"]
    results = run(
        engine,
        *[
            EngineRequest(str(number), prompt, SamplingParameters(max_new_tokens=COUNT), name)
            for number, (prompt, name) in enumerate(zip(prompts, names, strict=True))
        ],
    )
    merged = merged_model(directory, adapter)
    for number, (prompt, name) in enumerate(zip(prompts, names, strict=True)):
        model = reference(ARCHITECTURE) if name is None else merged
        assert ids(results[str(number)]) == reference_ids(model, prompt, COUNT)


def test_a_failed_step_frees_its_rows(
    model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # a record's traceback would refer to the rows
    engine = openvino_engine(model_directory(ARCHITECTURE))
    engine.add(request("a", make_prompts([9])[0], max_new_tokens=COUNT))
    engine.step()

    def fail(*_: object) -> None:
        raise RuntimeError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(StateTables, "store", fail)
        engine.step()
    assert not engine.has_work
    assert len(tables(engine)._free) == FIRST_SIZE - 1


def test_a_model_is_freed(model_directory: ModelDirectory) -> None:
    engine = openvino_engine(model_directory(ARCHITECTURE))
    run(engine, request("a", make_prompts([9])[0], max_new_tokens=COUNT))
    runner = weakref.ref(engine.runner)
    states = weakref.ref(tables(engine))
    del engine
    gc.collect()
    assert runner() is None
    assert states() is None


def test_states_that_are_lost_are_noticed_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = StateTables.inputs

    def from_the_start(self: StateTables, lengths: list[int], rows: list[tuple[int, int]]) -> dict[str, Any]:
        return inputs(self, lengths, [(0, after) for _, after in rows])

    monkeypatch.setattr(StateTables, "inputs", from_the_start)
    config = {**CONFIGS[ARCHITECTURE], "pad_token_id": 0}  # whose embedding is zeros
    save_tokenizer(tmp_path)
    save_configured(tmp_path, ARCHITECTURE, config)
    assert type(make_engine(tmp_path, cpu_runner="openvino").runner) is PagedRunner
    assert any(each.endswith("OpenVINO loses states") for each in caplog.messages)


def test_short_prompts_are_not_padded_to_long_ones(
    model_directory: ModelDirectory, reference: ReferenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = openvino_engine(model_directory(ARCHITECTURE))
    inputs, padded = StateTables.inputs, list[tuple[int, ...]]()

    def noted(self: StateTables, lengths: list[int], rows: list[tuple[int, int]]) -> dict[str, Any]:
        found = inputs(self, lengths, rows)
        padded.append(found["long_tokens"].shape)
        return found

    monkeypatch.setattr(StateTables, "inputs", noted)
    prompts = make_prompts([4, 60, 2, 30, 1])
    results = run(engine, *[request(str(i), each, max_new_tokens=COUNT) for i, each in enumerate(prompts)])
    assert padded[0] == (2, 60)
    for number, prompt in enumerate(prompts):
        assert ids(results[str(number)]) == reference_ids(reference(ARCHITECTURE), prompt, COUNT)


def test_states_stay_in_float32(
    model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LMI_CACHE", str(tmp_path))
    openvino_engine(model_directory(ARCHITECTURE), dtype="bf16")
    (file,) = (tmp_path / stored.FOLDER).glob("*.xml")
    assert file.read_text().count(state_nodes.PRECISE) == 2, "a convolution, and the delta rule of long prompts"


def test_states_stay_in_float32_without_a_cache_folder(
    model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "file"))
    read, graphs = stored._read, list[str]()

    def noted(file: Path) -> object:
        graphs.append(file.read_text())
        return read(file)

    monkeypatch.setattr(stored, "_read", noted)
    openvino_engine(model_directory(ARCHITECTURE))
    assert [graph.count(state_nodes.PRECISE) for graph in graphs] == [2]
    openvino_engine(model_directory("llama"))
    assert len(graphs) == 1, "other graphs need no file"


@torch.inference_mode()
def test_quantized_weights(model_directory: ModelDirectory) -> None:
    (prompt,) = make_prompts([40])
    found = []
    for quantize in (None, "int8"):
        engine = openvino_engine(model_directory(ARCHITECTURE), quantize=quantize)
        results = run(engine, request("a", prompt, max_new_tokens=1, prompt_log_probs=True))["a"]
        found.append([token.log_prob for result in results for token in getattr(result, "prefill", None) or ()][1:])
    assert found[1] != found[0]
    assert torch.tensor(found).diff(dim=0).abs().mean() < 0.15
