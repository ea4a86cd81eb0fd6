"""Checks that the paged cache supports a model's layers."""

import inspect
from typing import Any

from transformers import PreTrainedModel

from lmi_plugins.torch_engine.model.attention import UnsupportedAttention
from lmi_plugins.torch_engine.model.transformers_internals import is_stateful

LAYER_TYPES = {"full_attention", "sliding_attention"}
ARGUMENTS = {"position_ids", "logits_to_keep"}
# Their frequencies depend on the longest of the sequences that run together.
LENGTH_DEPENDENT_ROPES = {"dynamic", "longrope"}


def check_model(model: PreTrainedModel, max_length: int) -> None:
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
    if _rope_depends_on_length(config, max_length):
        raise UnsupportedAttention("its rotary embedding depends on the length of the sequence")


def check_windows(model: PreTrainedModel, windows: dict[int, int | None]) -> None:
    """Raise UnsupportedAttention if a layer implements its sliding window by a mask, which packed steps lack."""
    layer_types = getattr(model.config.get_text_config(), "layer_types", None) or ()
    for layer, layer_type in enumerate(layer_types):
        if layer_type == "sliding_attention" and windows.get(layer) is None:
            raise UnsupportedAttention(f"layer {layer} does not declare its sliding window")


def _rope_depends_on_length(config: Any, max_length: int) -> bool:
    """Return whether the rotary embedding of a token depends on other sequences in the batch."""
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") not in LENGTH_DEPENDENT_ROPES:
        return False
    original: int = rope.get("original_max_position_embeddings") or config.max_position_embeddings
    return max_length > original
