"""Models whose files alone show that they can be loaded: transformers finds nothing wrong with any of them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lmi_plugins.torch_engine.checkpoint import plain_models
from lmi_plugins.torch_engine.checkpoint.plain_models import ARCHITECTURES, inspect_plain_model
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingOptions
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.worker.inspection import inspect_model
from tests.plugins.torch_engine.checkpoint.test_weights_check import change_weights, configure
from tests.plugins.torch_engine.conftest import ModelDirectory
from tests.plugins.torch_engine.tiny_models import LLAMA, save_configured, save_tokenizer

ADAPTERS = {"adapter": "anywhere"}


@pytest.fixture
def copy(model_directory: ModelDirectory, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model_directory("llama"), tmp_path / "llama"))


def is_plain(folder: Path, **options: Any) -> bool:
    return inspect_plain_model(EngineOptions(str(folder), **options)) is not None


@pytest.mark.parametrize(
    "values", [{}, {"tie_word_embeddings": True, "head_dim": 16, "num_key_value_heads": 4}], ids=str
)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_trial_finds_no_more(tmp_path: Path, architecture: str, values: dict[str, Any]) -> None:
    save_tokenizer(tmp_path)
    save_configured(tmp_path, architecture, {**LLAMA, **values})
    options = EngineOptions(str(tmp_path))
    found = inspect_plain_model(options)
    assert found is not None
    assert [*found] == [*inspect_model(options)] == []


def test_faults_of_the_tokenizer_are_reported(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    options = EngineOptions(str(copy))
    found = inspect_plain_model(options)
    assert found is not None
    assert [*found] == [*inspect_model(options)] != []


@pytest.mark.parametrize(
    "values",
    [
        {"vocab_size": 321},
        {"vocab_size": None},
        {"num_hidden_layers": "2", "layer_types": []},
        {"num_hidden_layers": 3},
        {"hidden_size": "32"},
        {"intermediate_size": True},
        {"num_attention_heads": 3},
        {"model_type": "strange"},
        {"architectures": ["LlamaForSequenceClassification"]},
        {"tie_word_embeddings": True},
        {"attention_bias": True},
        {"attention_bias": 0},
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        {"layer_types": ["full_attention"]},
        {"initializer_range": 2.0},
        {"pad_token_id": 320},
        {"eos_token_id": [1, 400]},
        {"hidden_act": "gelu"},
        {"quantization_config": {"quant_method": "awq", "bits": 4}},
        {"auto_map": {"AutoConfig": "own.Config"}},
    ],
    ids=str,
)
def test_other_configurations_need_a_trial(copy: Path, values: dict[str, Any]) -> None:
    assert is_plain(copy)
    configure(copy, **values)
    assert not is_plain(copy)


@pytest.mark.parametrize("name", [*plain_models.SIZES, "architectures"])
def test_sizes_are_not_guessed(copy: Path, name: str) -> None:
    config = json.loads((copy / "config.json").read_text())
    del config[name]
    (copy / "config.json").write_text(json.dumps(config))
    assert not is_plain(copy)


def test_other_files_need_a_trial(copy: Path) -> None:
    change_weights(copy, lambda weights: weights.update({"another.weight": weights["model.norm.weight"].clone()}))
    assert not is_plain(copy)
    change_weights(copy, lambda weights: weights.pop("another.weight"))
    assert is_plain(copy)
    (copy / "modules.json").write_text("[]")
    assert not is_plain(copy)
    (copy / "modules.json").rename(copy / "adapter_model.bin")
    assert not is_plain(copy)
    (copy / "adapter_model.bin").unlink()
    (copy / "config.json").unlink()
    assert not is_plain(copy)


@pytest.mark.parametrize(
    "options",
    [
        {"adapters": ADAPTERS},
        {"embedding": EmbeddingOptions("embed")},
        {"max_model_len": 9999},
        {"kv_cache_memory": 1 << 60},
    ],
    ids=str,
)
def test_other_options_need_a_trial(copy: Path, options: dict[str, Any]) -> None:
    assert not is_plain(copy, **options)
