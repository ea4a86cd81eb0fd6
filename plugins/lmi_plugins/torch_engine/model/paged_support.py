"""Checks that the paged cache supports a model's layers."""

import inspect

from transformers import PreTrainedModel

from lmi_plugins.torch_engine.model.attention import UnsupportedAttention
from lmi_plugins.torch_engine.model.transformers_internals import is_stateful

LAYER_TYPES = {"full_attention", "sliding_attention"}
ARGUMENTS = {"position_ids", "logits_to_keep"}


def check_model(model: PreTrainedModel) -> None:
    """Raise UnsupportedAttention if the model's class or its configuration rules the paged cache out."""
    config = model.config.get_text_config()
    takes_functions: bool = model.is_backend_compatible()  # type: ignore[no-untyped-call]
    if not takes_functions or is_stateful(model):
        raise UnsupportedAttention("it does not support custom attention functions")
    if missing := ARGUMENTS - inspect.signature(model.forward).parameters.keys():
        raise UnsupportedAttention(f"it does not accept {', '.join(sorted(missing))}")
    if unknown := set(getattr(config, "layer_types", None) or ()) - LAYER_TYPES:
        raise UnsupportedAttention(f"it has layers of type {', '.join(sorted(unknown))}")
    if getattr(config, "is_decoder", False):
        raise UnsupportedAttention("it is an encoder used as a decoder, which numbers positions differently")


def check_windows(model: PreTrainedModel, windows: dict[int, int | None], max_length: int) -> None:
    """Raise UnsupportedAttention if a layer implements its sliding window by a mask, which packed steps lack."""
    config = model.config.get_text_config()
    layer_types = getattr(config, "layer_types", None)
    if layer_types is None and (getattr(config, "sliding_window", None) or max_length) < max_length:
        layer_types = ["sliding_attention"] * config.num_hidden_layers
    for layer, layer_type in enumerate(layer_types or ()):
        if layer_type == "sliding_attention" and windows.get(layer) is None:
            raise UnsupportedAttention(f"layer {layer} does not declare its sliding window")
