"""Tests that fail when transformers removes the names that `transformers_internals` uses."""

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, PreTrainedModel

from lmi_plugins.torch_engine.model.transformers_internals import attention_implementation, is_stateful
from tests.plugins.torch_engine.conftest import ModelDirectory


def load(directory: Path) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(directory)
    return model


@pytest.mark.parametrize(("architecture", "expected"), [("mamba", True), ("llama", False)])
def test_models_that_carry_a_state_are_known(
    model_directory: ModelDirectory, architecture: str, expected: bool
) -> None:
    assert is_stateful(load(model_directory(architecture))) is expected


def test_the_attention_in_use_can_be_restored(model_directory: ModelDirectory) -> None:
    model = load(model_directory("llama"))
    before = attention_implementation(model)
    model.set_attn_implementation("eager")
    assert (before, attention_implementation(model)) == ("sdpa", "eager")
    model.set_attn_implementation(before)
    assert attention_implementation(model) == before
