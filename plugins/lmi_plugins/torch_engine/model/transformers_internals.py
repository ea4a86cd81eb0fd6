"""Facts about a model that transformers has no public name for.

`is_stateful` reads the flag that makes transformers' own `generate` refuse methods that would rewind a model's state.
`takes_attention_functions` makes the same check as the public `set_attn_implementation`. The name of the attention is
set here because that method refuses models whose attention we replace ourselves; the name spares them a mask:
https://github.com/huggingface/transformers/blob/v5.0.0/src/transformers/modeling_utils.py
"""

from transformers import PreTrainedModel


def is_stateful(model: PreTrainedModel) -> bool:
    """Return whether the model carries a state from token to token that cannot be rewound, as Mamba does."""
    return model._is_stateful


def takes_attention_functions(model: PreTrainedModel) -> bool:
    """Return whether the attention of the model's class can be replaced."""
    return model._can_set_attn_implementation()


def attention_implementation(model: PreTrainedModel) -> str:
    """Return the name of the attention that the model uses now."""
    name: str = model.config._attn_implementation
    return name


def set_attention_implementation(model: PreTrainedModel, name: str) -> None:
    """Set the name of the attention that the model and the models in it use."""
    model.config._attn_implementation = name
