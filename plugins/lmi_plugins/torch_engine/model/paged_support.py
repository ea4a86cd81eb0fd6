"""Checks that the paged cache supports a model's layers."""

import inspect

from transformers import PreTrainedModel

from lmi_plugins.torch_engine.model.attention import UnsupportedAttention
from lmi_plugins.torch_engine.model.own_attention import has_own_attention
from lmi_plugins.torch_engine.model.state_layers import has_state_layers
from lmi_plugins.torch_engine.model.transformers_internals import is_stateful, takes_attention_functions

LAYER_TYPES = {"full_attention", "sliding_attention", "chunked_attention"}
STATE_TYPES = {"linear_attention", "conv", "hybrid", "mlp", "moe"}  # types of layers with a state


def check_model(model: PreTrainedModel, max_length: int) -> None:
    """Raise UnsupportedAttention if the model's class or its configuration rules the paged cache out."""
    config = model.config.get_text_config()
    if not (takes_attention_functions(model) or has_own_attention(model)):
        raise UnsupportedAttention("it does not support custom attention functions")
    has_states = has_state_layers(model)
    if is_stateful(model) and not has_states:
        raise UnsupportedAttention("it carries a state from token to token in its own way")
    if "logits_to_keep" not in inspect.signature(model.forward).parameters:
        raise UnsupportedAttention("it does not accept logits_to_keep")
    known = LAYER_TYPES | STATE_TYPES if has_states else LAYER_TYPES
    if unknown := set(getattr(config, "layer_types", None) or ()) - known:
        raise UnsupportedAttention(f"it has layers of type {', '.join(sorted(unknown))}")
    if "chunked_attention" in (getattr(config, "layer_types", None) or ()):  # Llama 4
        limit = min(config.attention_chunk_size, getattr(config, "floor_scale", max_length + 1))
        if max_length >= limit:
            raise UnsupportedAttention(
                f"it attends in chunks; with option.max_model_len below {limit}, one chunk holds all tokens"
            )
    if (limit := getattr(config, "keep_window_size", None)) is not None:  # Doge
        if limit < max_length:
            raise UnsupportedAttention(f"it attends to chosen tokens; with option.max_model_len up to {limit}, to all")
        if config.is_moe:  # the trial run may not notice
            raise UnsupportedAttention("its experts mix tokens")
    if getattr(config, "is_decoder", False):
        raise UnsupportedAttention("it is an encoder used as a decoder, which numbers positions differently")


def takes_positions(model: PreTrainedModel) -> bool:
    """Return whether the model uses the tokens' positions; ALiBi and layers with a state need none."""
    return "position_ids" in inspect.signature(model.forward).parameters


def fix_scales(model: PreTrainedModel) -> None:
    """Keep Llama 4's layers without a rotary embedding from scaling queries by their position in the step.

    The scale is 1 for all positions that `check_model` lets through.
    """
    for module in model.modules():
        if hasattr(module, "attn_temperature_tuning"):
            setattr(module, "attn_temperature_tuning", False)  # noqa: B010  # for mypy, modules have only modules


def check_windows(model: PreTrainedModel, windows: dict[int, int | None], max_length: int) -> None:
    """Raise UnsupportedAttention if a layer implements its sliding window by a mask, which packed steps lack."""
    config = model.config.get_text_config()
    layer_types = getattr(config, "layer_types", None)
    if layer_types is None and (getattr(config, "sliding_window", None) or max_length) < max_length:
        layer_types = ["sliding_attention"] * config.num_hidden_layers
    for layer, layer_type in enumerate(layer_types or ()):
        if layer_type == "sliding_attention" and windows.get(layer) is None:
            raise UnsupportedAttention(f"layer {layer} does not declare its sliding window")
