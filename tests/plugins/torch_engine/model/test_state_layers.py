"""Sequences with a state of fixed size decode together, whoever joins, leaves, or begins anew."""

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from lmi_core.generation.output import GenerationStep, Given
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.requests import CpuRunner, DataType, EngineRequest, SamplingParameters
from lmi_plugins.torch_engine.model.attention import LayoutProbe
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from lmi_plugins.torch_engine.model.state_layers import StateLayer, new_states, replace_state_layers
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.model.architectures import new_model
from tests.plugins.torch_engine.test_engine_greedy import make_prompts
from tests.plugins.torch_engine.tiny_models import (
    WITH_STATE,
    ids,
    make_engine,
    reference_ids,
    request,
    run,
    save_tokenizer,
)

RUNNERS = pytest.mark.parametrize(
    ("architecture", "runner"), [*((each, "torch") for each in WITH_STATE), ("qwen3_5_text", "openvino")]
)
PROMPTS = make_prompts([20, 1, 33, 5, 5])
COUNT = 12


def states(engine: Engine) -> list[object]:
    groups = [group for groups in engine.requests.groups.values() for group in groups]
    return [sequence.row_cache for group in groups for sequence in group.sequences]


@pytest.mark.parametrize("architecture", WITH_STATE)
def test_one_pass_decodes_all_and_copies_nothing(architecture: str, model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory(architecture))
    for place, prompt in enumerate(PROMPTS):
        engine.add(request(str(place), prompt, max_new_tokens=COUNT))
    for _ in range(3):
        engine.step()
    runner, before = engine.runner, states(engine)
    assert isinstance(runner, PagedRunner)
    layer = runner.state_layers[0]
    layer.run = Mock(wraps=layer.run)  # type: ignore[method-assign]
    engine.step()
    assert [call.args[0].shape[:2] for call in layer.run.call_args_list] == [(len(PROMPTS), 1)]
    assert states(engine) == before


@RUNNERS
def test_sequences_come_and_go(
    architecture: str, runner: CpuRunner, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    engine = make_engine(model_directory(architecture), cpu_runner=runner, max_prefill_tokens=8, max_batch_size=3)
    found: dict[str, list[int]] = {}
    waiting = [request(str(place), prompt, max_new_tokens=COUNT - place) for place, prompt in enumerate(PROMPTS)]
    steps = 0
    while waiting or engine.has_work:
        if steps % 4 == 0 and waiting:
            engine.add(waiting.pop())
        if steps == 6:
            engine.add(request("aborted", PROMPTS[0], max_new_tokens=COUNT))
        if steps == 12:
            engine.abort("aborted")
        for request_id, result in engine.step():
            assert isinstance(result, GenerationStep), result
            found.setdefault(request_id, []).extend(token.id for token in result.tokens)
        steps += 1
    for place, prompt in enumerate(PROMPTS):
        assert found[str(place)] == reference_ids(reference(architecture), prompt, COUNT - place)


@RUNNERS
def test_preempted_sequences_are_computed_again(
    architecture: str, runner: CpuRunner, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    engine = make_engine(model_directory(architecture), cpu_runner=runner)
    requests = [request(str(place), prompt, max_new_tokens=COUNT) for place, prompt in enumerate(PROMPTS)]
    for each in requests:
        engine.add(each)
    found: dict[str, list[int]] = {each.request_id: [] for each in requests}
    steps = 0
    while engine.has_work:
        if steps in (3, 4, 7):
            engine.scheduler._preempt()
        for request_id, result in engine.step():
            assert isinstance(result, GenerationStep), result
            found[request_id] += [token.id for token in result.tokens]
        steps += 1
    assert [*found.values()] == [reference_ids(reference(architecture), prompt, COUNT) for prompt in PROMPTS]


@RUNNERS
def test_a_request_resumes(
    architecture: str, runner: CpuRunner, model_directory: ModelDirectory, reference: ReferenceModel
) -> None:
    expected = reference_ids(reference(architecture), PROMPTS[0], COUNT)
    given = [Given(expected[:5])]
    resumed = EngineRequest("a", PROMPTS[0], SamplingParameters(max_new_tokens=COUNT), given=given)
    engine = make_engine(model_directory(architecture), cpu_runner=runner)
    assert ids(run(engine, resumed)["a"]) == expected[5:]


def test_states_take_memory_from_the_blocks(model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = model_directory("qwen3_5_text")
    runner = make_engine(directory).runner
    assert runner.state_bytes == 4 * (3 * 16 * 4 + 2 * 8 * 8), "a convolution over 4 tokens, and 2 heads"
    memory = 3 * 4 * runner.state_bytes + 10 * runner.block_bytes
    monkeypatch.setattr("lmi_plugins.torch_engine.cache.memory.available_memory", lambda *_: memory)
    assert make_engine(directory, max_batch_size=4).pool.size == 10


def test_layers_of_unknown_kinds_that_mix_tokens_are_noticed(
    model_directory: ModelDirectory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mix(self: LayoutProbe, layer: StateLayer, hidden: torch.Tensor) -> torch.Tensor:
        output, self.states[layer.index] = layer.try_out(hidden)
        return output

    monkeypatch.setattr(LayoutProbe, "mix", mix)
    assert not make_engine(model_directory("qwen3_5_text")).runner.paged
    assert "some of its layers mix tokens in their own way" in caplog.text


def test_layers_that_compute_one_sequence_at_a_time(tmp_path: Path) -> None:
    save_tokenizer(tmp_path)
    model = new_model("falcon_h1", mamba_rms_norm=True)
    model.save_pretrained(tmp_path)
    engine = make_engine(tmp_path)
    assert not engine.runner.paged
    requests = [request(str(place), prompt, max_new_tokens=COUNT) for place, prompt in enumerate(PROMPTS)]
    results = run(engine, *requests)
    for each, prompt in zip(requests, PROMPTS, strict=True):
        assert ids(results[each.request_id]) == reference_ids(model.eval(), prompt, COUNT)


@pytest.mark.parametrize(("dtype", "is_rounding"), [("bfloat16", True), ("float32", False)])
def test_rounding_in_other_company_is_not_taken_for_mixing(
    dtype: DataType, is_rounding: bool, model_directory: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mix(self: LayoutProbe, layer: StateLayer, hidden: torch.Tensor) -> torch.Tensor:
        output, self.states[layer.index] = layer.try_out(hidden)
        return output * 0.004

    monkeypatch.setattr(LayoutProbe, "mix", mix)
    runner = make_engine(model_directory("qwen3_5_text"), dtype=dtype, cpu_runner="torch").runner
    assert runner.paged is is_rounding


@pytest.mark.parametrize(
    "model_type",
    ["falcon_h1", "granitemoehybrid", "jamba", "lfm2", "mamba", "mamba2", "olmo_hybrid", "qwen3_5_text"],
)
@torch.inference_mode()
def test_parts_of_a_prompt_lead_to_the_same_state(model_type: str) -> None:
    torch.manual_seed(0)
    model = new_model(model_type)
    layer = replace_state_layers(model)[0]
    hidden = torch.randn(3, 12, model.config.get_text_config().hidden_size)
    whole = new_states([layer])
    expected = layer.run(hidden, whole)
    for lengths in ([5, 7], [4, 1, 6, 1], [1] * 12):
        states = new_states([layer])
        parts = [layer.run(part, states) for part in torch.split(hidden, lengths, 1)]
        torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-4, atol=1e-4)
