from collections.abc import Iterable
from typing import Any

import pytest
import torch

from lmi_plugins.torch_engine.embeddings.packed_states import PackedStep
from lmi_plugins.torch_engine.model.attention import NAME, LayoutProbe, UnsupportedAttention, running
from lmi_plugins.torch_engine.model.paged_runner import PagedRunner
from lmi_plugins.torch_engine.model.paged_support import check_model, check_windows
from lmi_plugins.torch_engine.model.row_runner import RowRunner
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.model.architectures import new_model
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
        check_model(reference(architecture), CONTEXT)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layer_types": ["full_attention", "indexed_attention"]}, "layers of type indexed_attention"),
        (
            {"layer_types": ["chunked_attention"] * 2, "attention_chunk_size": 64},
            "attends in chunks; .* below 64, one chunk",
        ),
        ({"keep_window_size": CONTEXT - 1}, f"attends to chosen tokens; .* up to {CONTEXT - 1}, to all"),
        ({"keep_window_size": CONTEXT, "is_moe": True}, "its experts mix tokens"),
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


def test_llama_4_scales_queries_by_their_positions_alone() -> None:
    """A step with several prompts has more tokens than a context; transformers counts those of the step."""
    model = new_model("llama4_text", no_rope_layers=[0, 0], floor_scale=CONTEXT // 2 + 1)
    tokens = [torch.randint(2, 90, (CONTEXT // 2,)) for _ in range(3)]
    expected = model(tokens[-1][None]).logits[0]
    PagedRunner(model, CONTEXT // 2)
    positions = torch.arange(CONTEXT // 2).repeat(3)[None]
    with running(PackedStep([CONTEXT // 2] * 3)):
        packed = model(torch.cat(tokens)[None], position_ids=positions, use_cache=False).logits[0]
    torch.testing.assert_close(packed[-CONTEXT // 2 :], expected, rtol=1e-4, atol=1e-4)


def test_falcon_keeps_the_keys_of_grouped_heads_once() -> None:
    model = new_model("falcon", new_decoder_architecture=True, num_kv_heads=2, alibi=False)
    tokens = torch.randint(2, 90, (2, 9))
    expected = model(tokens[1:]).logits[0]
    config = model.config
    runner = PagedRunner(model, CONTEXT)
    head_size = config.hidden_size // config.num_attention_heads
    numbers = 2 * config.num_hidden_layers * config.num_kv_heads * head_size
    assert runner.block_bytes == runner.block_size * numbers * model.dtype.itemsize
    with running(PackedStep([9, 9])):
        packed = model(tokens.reshape(1, -1), position_ids=torch.arange(9).repeat(2)[None], use_cache=False).logits[0]
    torch.testing.assert_close(packed[9:], expected, rtol=1e-4, atol=1e-4)


def test_falcon_rounds_alibi_as_transformers_does() -> None:
    model = new_model("falcon", hidden_size=256, num_attention_heads=16, alibi=True)
    tokens = torch.randint(2, 90, (2, CONTEXT))
    expected = model(tokens[1:]).logits[0]
    PagedRunner(model, CONTEXT)
    positions = torch.arange(CONTEXT).repeat(2)[None]
    with running(PackedStep([CONTEXT, CONTEXT])):
        packed = model(tokens.reshape(1, -1), position_ids=positions, use_cache=False).logits[0]
    torch.testing.assert_close(packed[CONTEXT:], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(UnsupportedAttention, match="does not support custom attention functions"):
        check_model(new_model("falcon", alibi=True), CONTEXT)


def test_doge_attends_by_the_values_of_keys() -> None:
    model = new_model("doge")
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.A)  # zeros would give all keys the same bias
    tokens = torch.randint(2, 90, (2, 9))
    expected = model(tokens[1:]).logits[0]
    PagedRunner(model, CONTEXT)
    with running(PackedStep([9, 9])):
        packed = model(tokens.reshape(1, -1), position_ids=torch.arange(9).repeat(2)[None], use_cache=False).logits[0]
    torch.testing.assert_close(packed[9:], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("architecture", "layers"), [("zamba", [1, 3]), ("zamba2", [1, 3]), ("hrm_text", range(8))])
def test_each_call_of_shared_attention_has_its_own_cache(architecture: str, layers: Iterable[int]) -> None:
    model = new_model(architecture)
    runner = PagedRunner(model, CONTEXT)
    probe = LayoutProbe()
    runner._forward(torch.zeros(1, 2, dtype=torch.long), torch.arange(2)[None], torch.tensor([1]), probe)
    assert list(probe.shapes) == list(layers)


def test_moshi_with_more_tokens_than_its_window_runs_by_row() -> None:
    model = new_model("moshi", sliding_window=WINDOW)
    with pytest.raises(UnsupportedAttention, match="layer 0 does not declare its sliding window"):
        PagedRunner(model, CONTEXT)
    assert not RowRunner(model, CONTEXT).splits_prompts
    assert PagedRunner(model, WINDOW).block_bytes


def test_models_must_take_positions_that_their_attention_needs(model_directory: ModelDirectory) -> None:
    model = reference_model(model_directory("llama"))
    forward = model.forward
    model.forward = lambda input_ids, logits_to_keep=0, **_: forward(input_ids, logits_to_keep=logits_to_keep)
    with pytest.raises(UnsupportedAttention, match="it does not accept position_ids"):
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
