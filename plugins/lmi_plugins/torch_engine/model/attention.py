"""Attention over the paged cache, in the form in which transformers' models call it."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch

from lmi_plugins.torch_engine.cache.kv_cache import LayerShape

NAME = "lmi_paged"  # as `attn_implementation`


class AttentionOptions(NamedTuple):
    """How one layer attends."""

    scale: float | None
    window: int | None  # tokens that one token sees, itself among them
    softcap: float | None
    sinks: torch.Tensor | None  # [heads], a logit beside those of the keys


class AttentionStep(ABC):
    """The attention of one forward pass, which each layer calls in turn."""

    @abstractmethod
    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        """Return the output, [1, tokens, heads, size of a value], for [1, heads, tokens, size] each."""


class UnsupportedAttention(Exception):
    """A layer attends in a way that the paged cache cannot serve."""


def paged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged_step: AttentionStep,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Serve a model whose `attn_implementation` is `lmi_paged` by the step that is among the model's arguments."""
    for name, argument in kwargs.items():
        if isinstance(argument, torch.Tensor):
            raise UnsupportedAttention(f"{type(module).__name__} has an unsupported form of attention, with {name}")
    if attention_mask is not None or not getattr(module, "is_causal", True):
        raise UnsupportedAttention(f"{type(module).__name__} has an unsupported form of attention")
    options = AttentionOptions(scaling, sliding_window, softcap, s_aux)
    return paged_step.attend(module.layer_idx, query, key, value, options), None


class LayoutProbe(AttentionStep):
    """A stand-in for attention that learns from one forward pass what each layer keeps of a token."""

    def __init__(self) -> None:
        self.shapes: dict[int, LayerShape] = {}
        self.windows: dict[int, int | None] = {}

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, options: AttentionOptions
    ) -> torch.Tensor:
        if layer in self.shapes:
            raise UnsupportedAttention(f"layer {layer} attends more than once")
        self.shapes[layer] = LayerShape(key.shape[1], key.shape[3], value.shape[3])
        self.windows[layer] = options.window
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3])
