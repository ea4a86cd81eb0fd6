"""What is told of a model that the torch engine cannot load, with no weight read."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForMaskedLM

from lmi_core.errors import ConfigurationError
from lmi_core.errors.sizes import readable
from lmi_core.serving_runtime import Note
from lmi_plugins.torch_engine.cache import memory
from lmi_plugins.torch_engine.embeddings.loading import load_embedding_engine
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.model.loading import load_model
from lmi_plugins.torch_engine.worker import inspection
from tests.plugins.torch_engine.checkpoint.test_weights_check import CAUSE, Weights, change_weights, configure
from tests.plugins.torch_engine.conftest import ModelDirectory
from tests.plugins.torch_engine.tiny_models import CONFIGS, CONTEXT


@pytest.fixture
def copy(model_directory: ModelDirectory, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model_directory("llama"), tmp_path / "llama"))


def faults(folder: Path, **options: Any) -> list[str]:
    found = inspection.inspect_model(EngineOptions(str(folder), **options))
    return [fault.removeprefix(f"{folder}: ") for fault in found if not isinstance(fault, Note)]


@pytest.mark.parametrize("architecture", CONFIGS)
def test_models_without_faults(model_directory: ModelDirectory, architecture: str) -> None:
    assert faults(model_directory(architecture)) == []


def test_missing_weights(copy: Path) -> None:
    change_weights(copy, lambda weights: weights.pop("lm_head.weight"))
    assert faults(copy) == [f"1 weight is missing (lm_head.weight): {CAUSE}"]
    configure(copy, tie_word_embeddings=True)
    assert faults(copy) == []


def test_unusable_adapters(copy: Path) -> None:
    adapters = {"empty": str(copy / "empty"), "bare": str(copy / "bare")}
    for folder, config in zip(adapters.values(), ("{}", '{"peft_type": "LORA", "r": 8, "lora_alpha": 8}'), strict=True):
        Path(folder).mkdir()
        Path(folder, "adapter_config.json").write_text(config)
    Path(adapters["empty"], "adapter_model.safetensors").touch()
    assert faults(copy, adapters=adapters) == [
        "adapter empty: peft_type must be LORA. Given: None",
        f"adapter bare: {adapters['bare']} does not contain a LoRA adapter in PEFT's format: there is no "
        "adapter_model.safetensors",
    ]


def test_weights_of_another_shape(copy: Path) -> None:
    configure(copy, vocab_size=321)
    (fault,) = faults(copy)
    assert fault.startswith(
        "2 weights are of another shape (lm_head.weight has the shape [320, 32] instead of [321, 32]"
    )


def test_weights_of_another_architecture(copy: Path) -> None:
    configure(copy, model_type="gpt_neox")
    (fault,) = faults(copy)
    assert " weights are missing (gpt_neox.embed_in.weight, " in fault


@pytest.mark.parametrize("prefix", ["", "model.model."])
def test_weights_by_other_names_that_loading_knows(copy: Path, prefix: str) -> None:
    """What transformers does of names is what counts, not what this project knows of it."""

    def rename(weights: Weights) -> None:
        for name in [name for name in weights if name.startswith("model.")]:
            weights[prefix + name.removeprefix("model.")] = weights.pop(name)

    change_weights(copy, rename)
    assert faults(copy) == []
    load_model(EngineOptions(str(copy)))


def test_weights_by_other_names_that_it_does_not_know(copy: Path) -> None:
    change_weights(copy, lambda weights: weights.update({"renamed.weight": weights.pop("model.norm.weight")}))
    (fault,) = faults(copy)
    told = "1 weight is missing (model.norm.weight); 1 weight is not in the model (renamed.weight)"
    assert fault == f"{told}: {CAUSE}"


def test_unknown_architecture(copy: Path) -> None:
    configure(copy, model_type="strange")
    (fault,) = faults(copy)
    assert fault.startswith("the model cannot be loaded: ")
    assert "`strange`" in fault


def test_device_and_memory_that_are_not_there(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (fault,) = inspection.inspect_device("cuda:77")
    assert fault.startswith("option.device: device 'cuda:77' cannot be used")
    monkeypatch.setattr(memory, "free_memory", lambda device: 70_000)
    numbers = sum(weight.numel() for weight in load_file(copy / "model.safetensors").values())
    needed = "too little memory: the weights need {}{}, but 70 kB are free in main memory"
    assert faults(copy) == [needed.format(readable(numbers * 4), "")]
    keys = " and the KV cache 1 kB"
    assert faults(copy, dtype="bf16", kv_cache_memory=1000) == [needed.format(readable(numbers * 2), keys)]


def test_what_does_not_fit_is_not_loaded(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: 70_000)
    with pytest.raises(ConfigurationError, match=r"too little memory: the weights need .* but 70 kB are free in main"):
        load_model(EngineOptions(str(copy)))


def test_a_cache_takes_no_more_than_all_sequences_need(copy: Path) -> None:
    assert faults(copy, kv_cache_memory=1 << 50, max_batch_size=1) == []


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"num_attention_heads": 3}, "is not a multiple of the number of attention heads (3)"),
        ({"hidden_size": "32"}, "Field 'hidden_size' expected int, got str"),
    ],
)
def test_wrong_values_of_the_configuration(copy: Path, values: dict[str, Any], reason: str) -> None:
    configure(copy, **values)
    (fault,) = faults(copy)
    assert reason in fault
    with pytest.raises(ConfigurationError, match=re.escape(fault)):
        load_model(EngineOptions(str(copy)))


def test_quantized_weights_that_cannot_be_read_here(copy: Path) -> None:
    configure(copy, quantization_config={"quant_method": "awq", "bits": 4, "version": "gemm"})
    (fault,) = faults(copy)
    assert fault.startswith("the model cannot be loaded: Loading an AWQ quantized model requires ")


def test_context_longer_than_the_model_s(copy: Path) -> None:
    assert faults(copy, max_model_len=9999) == [
        f"max_model_len is 9999, but the model's context holds {CONTEXT} tokens"
    ]


def test_pickled_weights(copy: Path) -> None:
    weights = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    torch.save(weights, file := copy / "pytorch_model.bin")
    assert faults(copy, allow_pickle=True) == []
    torch.save({name: weight for name, weight in weights.items() if name != "lm_head.weight"}, file)
    assert faults(copy, allow_pickle=True) == [f"1 weight is missing (lm_head.weight): {CAUSE}"]


def test_weights_of_another_program(copy: Path) -> None:
    (copy / "model.safetensors").rename(copy / "model.gguf")
    (fault,) = faults(copy)
    assert fault.startswith("no weights: model.gguf is in GGUF, llama.cpp's format, and has its own configuration")


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
