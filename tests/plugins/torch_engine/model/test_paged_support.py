from typing import Any

import pytest

from lmi_plugins.torch_engine.model.attention import NAME, UnsupportedAttention
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from lmi_plugins.torch_engine.model.paged_support import check_model, check_windows
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import BY_ROW, CONTEXT, PAGED, WINDOW, reference_model


@pytest.mark.parametrize("architecture", PAGED)
def test_models_that_take_an_attention_function(architecture: str, model_directory: ModelDirectory) -> None:
    model = reference_model(model_directory(architecture))
    runner = PagedRunner(model, CONTEXT)
    assert runner.block_bytes + runner.state_bytes > 0
    assert model.config._attn_implementation == NAME


@pytest.mark.parametrize("architecture", BY_ROW)
def test_models_that_do_not(architecture: str, reference: ReferenceModel) -> None:
    with pytest.raises(UnsupportedAttention, match="does not support custom attention functions"):
        check_model(reference(architecture))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layer_types": ["full_attention", "indexed_attention"]}, "layers of type indexed_attention"),
        (
            {"layer_types": ["chunked_attention"] * 2, "attention_chunk_size": 64},
            "attends in chunks; .* below 64 makes",
        ),
        ({"is_decoder": True}, "encoder used as a decoder"),
        ({"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 100}}, "rotary embedding"),
    ],
)
def test_configurations_that_the_cache_cannot_serve(
    changes: dict[str, Any], reason: str, model_directory: ModelDirectory
) -> None:
    model = reference_model(model_directory("llama"))
    for name, value in changes.items():
        setattr(model.config, name, value)
    with pytest.raises(UnsupportedAttention, match=reason):
        PagedRunner(model, CONTEXT)


def test_sliding_layers_must_tell_their_window(reference: ReferenceModel) -> None:
    check_windows(reference("gemma2"), {0: WINDOW, 1: None}, CONTEXT)
    with pytest.raises(UnsupportedAttention, match="layer 0 does not declare"):
        check_windows(reference("gemma2"), {0: None, 1: None}, CONTEXT)


def test_a_model_that_fails_the_trial_is_left_as_it_was(model_directory: ModelDirectory) -> None:
    model = reference_model(model_directory("llama"))
    before = model.config._attn_implementation
    model.model.layers[1].self_attn.is_causal = False
    with pytest.raises(
        UnsupportedAttention, match="a trial run failed: LlamaAttention has an unsupported form of attention"
    ):
        PagedRunner(model, CONTEXT)
    assert model.config._attn_implementation == before
