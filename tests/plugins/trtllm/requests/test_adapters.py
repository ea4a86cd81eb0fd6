"""LoRA by weights and by task id: the same text as the same adapter in PEFT's format, and as merged into the model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from lmi_plugins.torch_engine.messages.requests import EngineRequest, SamplingParameters
from tests.plugins.torch_engine.adapters.lora_adapters import merged_model, save_adapter
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import ids, make_engine, reference_ids, run
from tests.plugins.trtllm.asking import PROMPT, Asker
from tests.plugins.trtllm.requests.lora_rows import lora_tensors, padded, task_id

COUNT = 12


@pytest.fixture
def asker(model_directory: ModelDirectory) -> Iterator[Asker]:
    """Yield an asker with an empty cache for two adapters."""
    with Asker(model_directory("llama"), max_loras=2) as asker:
        yield asker


@pytest.fixture(scope="module")
def adapters(reference: ReferenceModel, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("adapters")
    return [save_adapter(base / str(seed), reference("llama"), seed, rank=4 + seed) for seed in range(3)]


def test_the_same_as_in_pefts_format(asker: Asker, adapters: list[Path], model_directory: ModelDirectory) -> None:
    engine = make_engine(model_directory("llama"), adapters={"peft": str(adapters[0])})
    peft = EngineRequest("a", PROMPT, SamplingParameters(max_new_tokens=COUNT), "peft")
    answer = asker.ids(count=COUNT, lora_task_id=task_id(7), **lora_tensors(adapters[0]))
    assert answer == ids(run(engine, peft)["a"])
    assert answer == reference_ids(merged_model(model_directory("llama"), adapters[0]), PROMPT, COUNT)
    assert answer != asker.ids(count=COUNT)


def test_later_requests_need_the_id_alone(asker: Asker, adapters: list[Path]) -> None:
    largest = task_id(2**64 - 1)
    first = asker.ids(count=COUNT, lora_task_id=largest, **lora_tensors(adapters[1]))
    assert asker.ids(count=COUNT, lora_task_id=largest) == first
    assert asker.ids(count=COUNT, lora_task_id=largest, **lora_tensors(adapters[1])) == first


def test_requests_with_different_adapters_run_together(asker: Asker, adapters: list[Path]) -> None:
    alone = [asker.ids(count=COUNT, lora_task_id=task_id(place), **lora_tensors(adapters[place])) for place in range(2)]
    plain = asker.ids(count=COUNT)
    asker.hold()
    requests = [asker.submit(count=COUNT, lora_task_id=task_id(place)) for place in (0, 1, 0)]
    requests.append(asker.submit(count=COUNT))
    asker.release()
    answers = [asker.received(each)[-1].tensors["output_ids"][0].tolist() for each in requests]
    assert answers == [alone[0], alone[1], alone[0], plain]
    assert max(each["Scheduled Requests"] for each in asker.statistics) == 4


def test_an_id_that_is_not_cached(asker: Asker, adapters: list[Path]) -> None:
    must = "`lora_task_id` must be cached, or be given with `lora_weights` and `lora_config`."
    assert asker.error(lora_task_id=task_id(3)) == f"{must} Given: 3, cached: none"
    asker.ids(lora_task_id=task_id(5), **lora_tensors(adapters[0]))
    assert asker.error(lora_task_id=task_id(3)) == f"{must} Given: 3, cached: 5"


def test_the_adapter_that_was_not_used_for_longest_is_evicted(asker: Asker, adapters: list[Path]) -> None:
    answers = [
        asker.ids(count=COUNT, lora_task_id=task_id(place), **lora_tensors(adapters[place])) for place in range(2)
    ]
    assert asker.ids(count=COUNT, lora_task_id=task_id(0)) == answers[0]
    asker.ids(count=COUNT, lora_task_id=task_id(2), **lora_tensors(adapters[2]))
    assert asker.error(lora_task_id=task_id(1)).endswith("Given: 1, cached: 0, 2")
    assert asker.ids(count=COUNT, lora_task_id=task_id(0)) == answers[0]
    assert asker.ids(count=COUNT, lora_task_id=task_id(1), **lora_tensors(adapters[1])) == answers[1]
    assert asker.error(lora_task_id=task_id(2)).endswith("Given: 2, cached: 0, 1")


def test_other_weights_take_the_place_of_those_that_an_id_had(asker: Asker, adapters: list[Path]) -> None:
    first, second = (
        asker.ids(count=COUNT, lora_task_id=task_id(0), **lora_tensors(adapters[place])) for place in (0, 1)
    )
    assert first != second
    assert asker.ids(count=COUNT, lora_task_id=task_id(0)) == second


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_of_other_types(asker: Asker, adapters: list[Path], dtype: str) -> None:
    tensors = lora_tensors(adapters[0])
    weights = torch.tensor(tensors["lora_weights"]).to(getattr(torch, dtype))
    half = asker.ask(lora_task_id=task_id(0), **tensors | {"lora_weights": weights}, return_context_logits=[True])
    rounded = weights.float().numpy()
    same = asker.ask(lora_task_id=task_id(1), **tensors | {"lora_weights": rounded}, return_context_logits=[True])
    numpy.testing.assert_allclose(half["context_logits"], same["context_logits"], atol=1e-4)


def test_query_key_and_value_as_one_module(asker: Asker, model_directory: ModelDirectory) -> None:
    """NVIDIA's attn_qkv: one matrix in, and one out for all three."""
    numbers = numpy.random.default_rng(0)
    model = asker.manager.engine.adapters.modules
    outs = [model[f"model.layers.0.self_attn.{part}_proj"][1] for part in "qkv"]
    down, up = (numbers.normal(0, 0.3, shape).astype("float32") for shape in ((4, 32), (sum(outs), 4)))
    together = {
        "lora_weights": padded([numpy.concatenate([down.ravel(), up.ravel()])]),
        "lora_config": numpy.array([[0, 0, 4]], "int32"),
    }
    parts = numpy.split(up, numpy.cumsum(outs)[:-1])
    apart = {
        "lora_weights": padded([numpy.concatenate([down.ravel(), part.ravel()]) for part in parts]),
        "lora_config": numpy.array([[1, 0, 4], [2, 0, 4], [3, 0, 4]], "int32"),
    }
    answer = asker.ids(count=COUNT, lora_task_id=task_id(0), **together)
    assert answer == asker.ids(count=COUNT, lora_task_id=task_id(1), **apart)
    assert answer != asker.ids(count=COUNT)


def test_a_model_with_fused_modules(model_directory: ModelDirectory) -> None:
    """GPT-2's attention has one module for query, key and value, and its MLP no gate."""
    with Asker(model_directory("gpt2")) as asker:
        modules = asker.manager.engine.adapters.modules
        rows, config = [], []
        numbers = numpy.random.default_rng(0)
        for module_id, name in ((0, "attn.c_attn"), (4, "attn.c_proj"), (5, "mlp.c_fc"), (6, "mlp.c_proj")):
            ins, out = modules[f"transformer.h.1.{name}"]
            rows.append(numbers.normal(0, 0.3, 2 * (ins + out)).astype("float32"))
            config.append([module_id, 1, 2])
        tensors = {"lora_weights": padded(rows), "lora_config": numpy.array(config, "int32")}
        assert asker.ids(count=COUNT, lora_task_id=task_id(0), **tensors) != asker.ids(count=COUNT)
        assert "of this model" in asker.error(
            lora_task_id=task_id(1),
            lora_weights=tensors["lora_weights"][:1],
            lora_config=numpy.array([[7, 1, 2]], "int32"),
        )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([8, 0, 4], r"^`lora_config` must have rows of .*0 \(attn_qkv\), .*Given: \[8, 0, 4\] in row 0$"),
        ([1, 2, 4], r"^`lora_config` must have rows of .* Given: \[1, 2, 4\] in row 0$"),
        ([1, 0, 0], r"^`lora_config` must have rows of .* Given: \[1, 0, 0\] in row 0$"),
        ([1, 0, 5], r"^`lora_weights` must have at least 320 numbers in row 0, for rank 5, 32 .* Given: 256$"),
        ([2, 0, 4], r"^`lora_config` must name each module once\. Given: \[2, 0, 4\] in row 1 again$"),
    ],
)
def test_rows_that_do_not_fit(asker: Asker, row: list[int], message: str) -> None:
    config = numpy.array([row, [2, 0, 4]], "int32")
    weights = numpy.ones((2, 4 * (32 + 32)), "float32")
    error = asker.error(lora_task_id=task_id(0), lora_weights=weights, lora_config=config)
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(error)


def test_a_rank_above_the_highest(asker: Asker) -> None:
    config = numpy.array([[1, 0, 17]], "int32")
    weights = numpy.ones((1, 17 * 64), "float32")
    error = asker.error(lora_task_id=task_id(0), lora_weights=weights, lora_config=config)
    assert error.startswith("`lora_weights` cannot be used: ")
    assert "17" in error


def test_a_model_that_takes_no_adapters(model_directory: ModelDirectory, adapters: list[Path]) -> None:
    with Asker(model_directory("llama"), enable_lora=False) as asker:
        tensors: dict[str, Any] = {"lora_task_id": task_id(0), **lora_tensors(adapters[0])}
        assert "enable_lora is false" in asker.error(**tensors)
        assert len(asker.ids()) == 6
