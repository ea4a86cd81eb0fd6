"""Tests that fail when transformers removes the names that `transformers_internals` uses."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from lmi_plugins.torch_engine.model.transformers_internals import (
    attention_implementation,
    is_stateful,
    set_attention_implementation,
    takes_attention_functions,
)
from tests.plugins.torch_engine.conftest import ModelDirectory


def load(directory: Path) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(directory)
    return model


@pytest.mark.parametrize(("architecture", "expected"), [("mamba", True), ("llama", False)])
def test_models_that_carry_a_state_are_known(
    model_directory: ModelDirectory, architecture: str, expected: bool
) -> None:
    assert is_stateful(load(model_directory(architecture))) is expected


def test_the_attention_can_be_set(model_directory: ModelDirectory) -> None:
    model = load(model_directory("llama"))
    set_attention_implementation(model, "eager")
    assert attention_implementation(model) == "eager"
    assert "attentions" in model(torch.tensor([[1, 2]]), output_attentions=True), "what only this one returns"


@pytest.mark.parametrize(("architecture", "expected"), [("trocr", False), ("llama", True)])
def test_models_that_take_attention_functions(
    model_directory: ModelDirectory, architecture: str, expected: bool
) -> None:
    assert takes_attention_functions(load(model_directory(architecture))) is expected
