"""What is told of a model that the torch engine cannot load, with no weight read."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, BertConfig, BertForMaskedLM

from lmi_core.errors import ConfigurationError
from lmi_core.inspection.checkpoint import read_checkpoint
from lmi_plugins.torch_engine.checkpoint import inspection
from lmi_plugins.torch_engine.embeddings.loading import load_embedding_engine
from lmi_plugins.torch_engine.worker.messages import EngineOptions
from tests.plugins.torch_engine.checkpoint.test_weights_check import CAUSE, change_weights, configure
from tests.plugins.torch_engine.conftest import ModelDirectory
from tests.plugins.torch_engine.tiny_models import CONFIGS


@pytest.fixture
def copy(model_directory: ModelDirectory, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model_directory("llama"), tmp_path / "llama"))


def faults(folder: Path, **options: Any) -> list[str]:
    found = inspection.inspect_model(EngineOptions(str(folder), **options), read_checkpoint(folder))
    return [fault.removeprefix(f"{folder}: ") for fault in found]


@pytest.mark.parametrize("architecture", CONFIGS)
def test_models_without_faults(model_directory: ModelDirectory, architecture: str) -> None:
    assert faults(model_directory(architecture)) == []


def test_missing_weights(copy: Path) -> None:
    change_weights(copy, lambda weights: weights.pop("lm_head.weight"))
    assert faults(copy) == [f"1 weight is missing (lm_head.weight): {CAUSE}"]
    configure(copy, tie_word_embeddings=True)
    assert faults(copy) == []


def test_weights_of_another_shape(copy: Path) -> None:
    configure(copy, vocab_size=321)
    (fault,) = faults(copy)
    assert fault.startswith(
        "2 weights are of another shape (lm_head.weight has the shape [320, 32] instead of [321, 32]"
    )


def test_weights_of_another_architecture(copy: Path) -> None:
    configure(copy, model_type="bert")
    (fault,) = faults(copy)
    assert " weights are missing (bert.embeddings.LayerNorm.bias, " in fault


def test_weights_by_other_names_are_left_to_loading(copy: Path) -> None:
    change_weights(copy, lambda weights: weights.update({"renamed.weight": weights.pop("model.norm.weight")}))
    assert faults(copy) == []


def test_unknown_architecture(copy: Path) -> None:
    configure(copy, model_type="strange")
    (fault,) = faults(copy)
    assert fault.startswith("the model cannot be loaded: ")
    assert "`strange`" in fault


def test_device_and_memory_that_are_not_there(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fault,) = faults(copy, device="cuda:77")
    assert fault.startswith("option.device: device 'cuda:77' cannot be used")
    monkeypatch.setattr(inspection, "free_memory", lambda device: 70_000)
    model = inspection.without_weights(EngineOptions(str(copy)), AutoModelForCausalLM)
    numbers = sum(weight.numel() for weight in model.state_dict().values())
    needed = "memory: the weights need {:,} bytes{}, but cpu has 70,000 bytes free"
    assert faults(copy) == [needed.format(numbers * 4, "")]
    keys = " and 1,000 for keys and values"
    assert faults(copy, dtype="bf16", kv_cache_memory=1000) == [needed.format(numbers * 2, keys)]


def test_encoders(tmp_path: Path) -> None:
    """Embeddings need neither a model's head nor its pooler, but all other weights."""
    sizes: dict[str, Any] = {"vocab_size": 64, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    factory: Any = BertForMaskedLM  # not typed
    factory(BertConfig(**sizes, num_hidden_layers=1)).save_pretrained(tmp_path)
    assert faults(tmp_path) == []
    load_embedding_engine(EngineOptions(str(tmp_path)))
    configure(tmp_path, hidden_size=32)
    configure(tmp_path, intermediate_size=48)
    with pytest.raises(ConfigurationError, match="weights are of another shape"):
        load_embedding_engine(EngineOptions(str(tmp_path)))
    configure(tmp_path, hidden_size=16, intermediate_size=32, num_hidden_layers=2)
    with pytest.raises(ConfigurationError, match=r"16 weights are missing \(.*encoder\.layer\.1\."):
        load_embedding_engine(EngineOptions(str(tmp_path)))
