from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch
from transformers import T5Config

from lmi_core.errors import ConfigurationError
from lmi_plugins.torch_engine.messages.requests import DataType, EngineOptions
from lmi_plugins.torch_engine.model.loading import (
    DATA_TYPES,
    choose_device,
    context_length,
    eos_token_ids,
    load_model,
)
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import CONTEXT


def test_loads_in_the_data_type_asked_for(model_directory: ModelDirectory) -> None:
    directory = str(model_directory("llama"))
    assert load_model(EngineOptions(directory)).dtype == torch.float32
    assert load_model(EngineOptions(directory, dtype="bf16")).dtype == torch.bfloat16


def test_attention_makes_no_plan_for_each_length(model_directory: ModelDirectory) -> None:
    """cuDNN's does, which takes an H100 0.05 to 0.09 s for each new length of a prompt."""
    torch.backends.cuda.enable_cudnn_sdp(True)
    load_model(EngineOptions(str(model_directory("llama"))))
    assert not torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]


def test_a_directory_without_a_model_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"^{tmp_path}: no weights: "):
        load_model(EngineOptions(str(tmp_path)))


def test_encoder_decoders_are_refused(tmp_path: Path) -> None:
    T5Config().save_pretrained(tmp_path)
    with pytest.raises(ConfigurationError, match="t5 is an encoder-decoder model"):
        load_model(EngineOptions(str(tmp_path)))


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    for module in (torch.cuda, torch.backends.mps):
        monkeypatch.setattr(module, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(ConfigurationError, match="device 'tpu' cannot be used"):
        choose_device("tpu")


def test_context_length(reference: ReferenceModel) -> None:
    assert context_length(reference("llama").config, None) == CONTEXT
    assert context_length(reference("gpt2").config, 50) == 50
    assert context_length(reference("mamba").config, None) == 2048
    assert context_length(reference("mamba").config, 100_000) == 100_000
    with pytest.raises(ConfigurationError, match="max_model_len is 129, but the model's context holds 128"):
        context_length(reference("llama").config, CONTEXT + 1)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [(None, None, set()), (None, 3, {3}), (4, 3, {4}), ([4, 5], 3, {4, 5}), (None, [6], {6})],
)
def test_eos_token_ids(generation: Any, config: Any, expected: set[int]) -> None:
    text_config = SimpleNamespace(eos_token_id=config)
    model: Any = SimpleNamespace(
        generation_config=SimpleNamespace(eos_token_id=generation),
        config=SimpleNamespace(get_text_config=lambda: text_config),
    )
    assert eos_token_ids(model) == expected


def test_every_data_type_has_its_own() -> None:
    assert DATA_TYPES.keys() == set(get_args(DataType))
    assert {str(DATA_TYPES[name]) for name in ("fp16", "float16", "half")} == {"torch.float16"}
    assert {str(DATA_TYPES[name]) for name in ("fp32", "float32", "float")} == {"torch.float32"}
